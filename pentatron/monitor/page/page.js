// SPDX-License-Identifier: Apache-2.0
'use strict';
(() => {
  const COLOURS = ['#3b7ddd', '#e0702b', '#2ba36b', '#a05cd6', '#d6455d', '#1aa0b8', '#b08a1f', '#7a7f8c'];
  const POLL_MS = 1000;
  const SLOWEST_POLL_MS = 15000;
  // Places of a record's values (kFields of the server), after its kind and iteration.
  const LOSS = 2, NORM = 3, RATE = 4, SPEED = 5, MEMORY = 6, SET = 9;
  // Of validation sets, so that those of one run differ beside other runs.
  const DASHES = ['5 4', '1.5 4', '10 4', '10 4 1.5 4'];
  const CHARTS = [
    {id: 'loss', title: 'Loss', unit: 'nats per token', column: LOSS, wide: true, evaluations: true},
    {id: 'learning-rate', title: 'Learning rate', unit: '', column: RATE, zero: true},
    {id: 'gradient-norm', title: 'Gradient norm', unit: '', column: NORM, smooth: true},
    {id: 'throughput', title: 'Throughput', unit: 'tokens/s', column: SPEED, smooth: true, zero: true},
    {id: 'memory', title: 'Memory', unit: 'GiB', column: MEMORY, scale: 1 / 2 ** 30, zero: true},
  ];
  const SVG = 'http://www.w3.org/2000/svg';
  const $ = id => document.getElementById(id);
  const runs = new Map();  // by id
  const charts = [];
  let hover = null;        // iteration under the pointer
  let sampleStep = null;   // iteration whose samples are shown; null: the newest
  let totalRecords = 0, updates = 0;

  function svg(name, attributes, text) {
    const node = document.createElementNS(SVG, name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (text !== undefined) node.textContent = text;
    return node;
  }
  function html(name, className, text) {
    const node = document.createElement(name);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  }

  // ---- numbers -------------------------------------------------------------------------------
  function short(value, digits = 4) {
    if (value === null || value === undefined || !isFinite(value)) return '–';
    const size = Math.abs(value);
    if (size === 0) return '0';
    if (size < 1e-3) return value.toExponential(Math.max(0, digits - 2)).replace(/\.?0*e-/, 'e−');
    for (const [limit, letter] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e4, 'k']]) {
      if (size >= limit) return trimmed(value / (letter === 'k' ? 1e3 : limit), digits) + letter;
    }
    return trimmed(value, digits);
  }
  function trimmed(value, digits) {
    const text = value.toPrecision(digits);
    return text.includes('e') ? String(Number(text)) : text.includes('.') ? text.replace(/\.?0+$/, '') : text;
  }
  function niceStep(span, most) {
    const power = 10 ** Math.floor(Math.log10(span / most));
    for (const factor of [1, 2, 2.5, 5, 10]) if (factor * power * most >= span * 0.999999) return factor * power;
    return 10 * power;
  }
  function linearTicks(low, high, most) {
    const step = niceStep(high - low, most), ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9 && ticks.length < 30; ++i) ticks.push(i * step);
    return ticks;
  }
  function logTicks(low, high, most) {
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); ++power) {
      for (const factor of [1, 2, 5]) {
        const value = factor * 10 ** power;
        if (value >= low && value <= high) ticks.push(value);
      }
    }
    if (ticks.length < 2) return linearTicks(low, high, most);
    return ticks.length > 2 * most ? ticks.filter(t => Math.abs(Math.log10(t) % 1) < 1e-9) : ticks;
  }

  // ---- runs ----------------------------------------------------------------------------------
  function newRun(info) {
    const colour = COLOURS[info.id % COLOURS.length];
    const button = html('button');
    button.type = 'button';
    const chip = html('i');
    chip.style.background = colour;
    button.append(chip, html('span', '', info.name));
    button.setAttribute('aria-pressed', 'true');
    button.title = info.name;
    const run = {id: info.id, name: info.name, colour, button, shown: true, age: 0};
    button.addEventListener('click', () => {
      run.shown = !run.shown;
      button.setAttribute('aria-pressed', String(run.shown));
      draw();
    });
    $('runs').append(button);
    forget(run, 0);
    return run;
  }
  function forget(run, generation) {
    run.generation = generation;
    run.next = 0;
    run.train = [];       // records, by rising iteration
    run.validation = new Map();  // by name of the set, '' for the only one
    run.samples = [];
  }
  // A run that was resumed says some iterations again: the later word counts.
  function put(list, record) {
    while (list.length > 0 && list[list.length - 1][1] >= record[1]) list.pop();
    list.push(record);
  }
  function take(run, answer) {
    if (answer.generation !== run.generation || answer.from !== run.next) forget(run, answer.generation);
    if (answer.from !== run.next) return false;
    for (const record of answer.records) {
      if (record[0] === 't') put(run.train, record);
      else if (record[0] === 'v') {
        const set = record[SET] || '';
        if (!run.validation.has(set)) run.validation.set(set, []);
        put(run.validation.get(set), record);
      }
      else if (record[0] === 's') {
        // After training the last evaluation is made once more.
        run.samples = run.samples.filter(s => s.iteration !== record[1] || s.prompt !== record[2]);
        run.samples.push({iteration: record[1], prompt: record[2], text: record[3], run});
      }
    }
    run.next = answer.next;
    return answer.records.length > 0;
  }

  // ---- drawing -------------------------------------------------------------------------------
  function makeChart(spec) {
    const card = html('section', spec.wide ? 'card wide' : 'card');
    card.id = 'chart-' + spec.id;
    const head = html('div', 'head');
    const now = html('div', 'now');
    head.append(html('h2', '', spec.title), now);
    const keys = html('div', 'keys');
    const plot = html('div', 'plot');
    const picture = svg('svg', {role: 'img', 'aria-label': spec.title});
    const tip = html('div', 'tip');
    tip.hidden = true;
    plot.append(picture, tip);
    card.append(head);
    if (spec.evaluations) card.append(keys);
    card.append(plot);
    $('cards').append(card);
    const chart = {spec, card, now, keys, plot, picture, tip, series: [], place: null};
    const at = event => {
      if (chart.place === null) return;
      const x = event.clientX - plot.getBoundingClientRect().left;
      hover = chart.place.iterationAt(x);
      for (const other of charts) drawHover(other, other === chart);
    };
    plot.addEventListener('pointermove', at);
    plot.addEventListener('pointerdown', at);
    plot.addEventListener('pointerleave', () => {
      hover = null;
      for (const other of charts) drawHover(other, false);
    });
    return chart;
  }

  function valuesOf(records, column, scale, from) {
    const points = [];
    for (const record of records) {
      if (record[1] < from) continue;
      const value = record[column];
      points.push([record[1], value === null || value === undefined ? NaN : value * scale]);
    }
    return points;
  }
  // Exponential mean with the start's bias taken out.
  function smoothed(points, weight) {
    let sum = 0, mass = 0;
    return points.map(([x, y]) => {
      if (!isFinite(y)) return [x, y];
      sum = sum * weight + y * (1 - weight);
      mass = mass * weight + (1 - weight);
      return [x, sum / mass];
    });
  }

  function seriesOf(chart, from) {
    const {spec} = chart, series = [], weight = Number($('smoothing').value);
    const visible = [...runs.values()].filter(run => run.shown);
    // A set looks alike in all runs.
    const sets = [...new Set(visible.flatMap(run => [...run.validation.keys()]))];
    for (const run of visible) {
      const points = valuesOf(run.train, spec.column, spec.scale || 1, from);
      if (points.length > 0) {
        const smooth = weight > 0 && (spec.smooth || spec.evaluations);
        series.push({run, kind: 'train', colour: run.colour, points, curve: smooth ? smoothed(points, weight) : points, faint: smooth});
      }
      if (!spec.evaluations) continue;
      for (const [set, records] of run.validation) {
        const evaluations = valuesOf(records, LOSS, 1, from), index = sets.indexOf(set);
        const colour = visible.length === 1 ? COLOURS[(run.id + 1 + index) % COLOURS.length] : run.colour;
        const label = set === '' ? 'validation' : 'validation ' + set;
        if (evaluations.length > 0) {
          series.push({run, kind: 'validation', label, colour, points: evaluations, curve: evaluations,
                       dots: true, dash: DASHES[index % DASHES.length]});
        }
      }
    }
    return series;
  }

  // A path of at most four points for each column of pixels: first, least, greatest, last.
  function pathOf(points, px, py) {
    let path = '', down = false, column = null, cell = null;
    const line = (x, y) => { path += (down ? 'L' : 'M') + x.toFixed(1) + ' ' + y.toFixed(1); down = true; };
    const flush = () => {
      if (cell === null) return;
      const {x, first, low, high, last, lowFirst} = cell;
      line(x, first);
      if (low !== high) { line(x, lowFirst ? low : high); line(x, lowFirst ? high : low); }
      if (last !== first) line(x, last);
      cell = null;
      column = null;
    };
    for (const [iteration, value] of points) {
      const y = isFinite(value) ? py(value) : NaN;
      if (!isFinite(y)) { flush(); down = false; continue; }
      const x = px(iteration), at = Math.round(x);
      if (at !== column) { flush(); column = at; cell = {x, first: y, low: y, high: y, last: y, lowFirst: true}; continue; }
      if (y < cell.low) { cell.low = y; cell.lowFirst = false; }
      if (y > cell.high) { cell.high = y; cell.lowFirst = true; }
      cell.last = y;
    }
    flush();
    return path;
  }

  function rangeOf(series, log) {
    let x0 = Infinity, x1 = -Infinity, y0 = Infinity, y1 = -Infinity;
    for (const {points} of series) {
      for (const [x, y] of points) {
        if (!isFinite(y) || (log && y <= 0)) continue;
        x0 = Math.min(x0, x); x1 = Math.max(x1, x); y0 = Math.min(y0, y); y1 = Math.max(y1, y);
      }
    }
    return {x0, x1, y0, y1};
  }

  function drawChart(chart, from) {
    const {spec, picture, plot} = chart;
    const log = spec.evaluations && $('log-scale').checked;
    const series = seriesOf(chart, from);
    chart.series = series;
    chart.place = null;
    const fragment = document.createDocumentFragment();
    const width = plot.clientWidth, height = plot.clientHeight;
    let {x0, x1, y0, y1} = rangeOf(series, log);
    if (x0 <= x1 && width > 0) {
      if (x0 === x1) { x0 -= 1; x1 += 1; }
      if (spec.zero) y0 = Math.min(0, y0);
      if (log) { const grow = Math.max(1.02, (y1 / y0) ** 0.04); y0 /= grow; y1 *= grow; }
      else {
        const margin = y1 > y0 ? 0.05 * (y1 - y0) : Math.max(Math.abs(y1) * 0.05, 1e-12);
        y1 += margin;
        if (!(spec.zero && y0 === 0)) y0 -= margin;
      }
      const bottom = height - 24, top = 8;
      const yTicks = log ? logTicks(y0, y1, height / 55) : linearTicks(y0, y1, Math.max(2, height / 48));
      const labels = yTicks.map(t => short(t, 3));
      const left = 12 + 6.6 * Math.max(3, ...labels.map(l => l.length)), right = width - 10;
      const px = x => left + (x - x0) / (x1 - x0) * (right - left);
      const py = log ? y => y > 0 ? bottom - Math.log(y / y0) / Math.log(y1 / y0) * (bottom - top) : NaN
                     : y => bottom - (y - y0) / (y1 - y0) * (bottom - top);
      chart.place = {px, py, top, bottom, left, right, width,
        iterationAt: x => Math.round(x0 + Math.min(1, Math.max(0, (x - left) / (right - left))) * (x1 - x0))};
      yTicks.forEach((tick, i) => {
        fragment.append(svg('line', {class: 'grid', x1: left, x2: right, y1: py(tick), y2: py(tick)}),
                        svg('text', {x: left - 7, y: py(tick) + 4, 'text-anchor': 'end'}, labels[i]));
      });
      for (const tick of linearTicks(x0, x1, Math.max(2, width / 110))) {
        if (tick !== Math.round(tick)) continue;
        const x = px(tick), anchor = x > right - 14 ? 'end' : 'middle';
        fragment.append(svg('line', {class: 'axis', x1: x, x2: x, y1: bottom, y2: bottom + 4}),
                        svg('text', {x: anchor === 'end' ? right : x, y: bottom + 18, 'text-anchor': anchor}, short(tick)));
      }
      fragment.append(svg('line', {class: 'axis', x1: left, x2: right, y1: bottom, y2: bottom}));
      for (const one of series) drawSeries(fragment, one, px, py);
      chart.hoverLayer = svg('g', {});
      fragment.append(chart.hoverLayer);
    }
    picture.replaceChildren(fragment);
    chart.card.hidden = chart.place === null;
    tellNow(chart);
    drawHover(chart, !chart.tip.hidden);
  }

  function drawSeries(fragment, one, px, py) {
    if (one.faint) fragment.append(svg('path', {class: 'raw', stroke: one.colour, d: pathOf(one.points, px, py)}));
    const curve = svg('path', {class: one.dots ? 'curve dashed' : 'curve', stroke: one.colour, 'data-kind': one.label || one.kind, d: pathOf(one.curve, px, py)});
    if (one.dash) curve.setAttribute('stroke-dasharray', one.dash);
    fragment.append(curve);
    if (!one.dots || one.points.length > 200) return;
    for (const [x, y] of one.points) {
      if (isFinite(y) && isFinite(py(y))) fragment.append(svg('circle', {class: 'dot', cx: px(x).toFixed(1), cy: py(y).toFixed(1), r: 3.6, fill: one.colour}));
    }
  }

  // The newest value, and what a test can read.
  function tellNow(chart) {
    const {spec, series, card, now, keys} = chart;
    const trains = series.filter(one => one.kind === 'train');
    const newest = trains.length > 0 ? trains[trains.length - 1].curve : [];
    const value = newest.length > 0 ? newest[newest.length - 1][1] : NaN;
    // Each run's newest value in its colour, as many as the line holds.
    const most = spec.wide ? 4 : 2, numbers = [];
    for (const one of trains.slice(-most)) {
      const number = html('span', '', short(one.curve[one.curve.length - 1][1]));
      if (trains.length > 1) number.style.color = one.colour;
      numbers.push(number);
    }
    now.replaceChildren(...numbers, html('small', '', spec.unit));
    card.dataset.points = String(series.reduce((sum, one) => sum + one.points.length, 0));
    card.dataset.iteration = String(newest.length > 0 ? newest[newest.length - 1][0] : -1);
    card.dataset.value = String(value);
    if (!spec.evaluations) return;
    const entries = [];
    const few = new Set(series.map(one => one.run)).size === 1;
    const labels = [...new Set(series.map(s => s.label))];  // undefined: training
    for (const label of [...labels.filter(l => l === undefined), ...labels.filter(l => l !== undefined)]) {
      const one = series.find(s => s.label === label);
      const colour = few ? one.colour : 'currentColor', key = html('span');
      const mark = svg('svg', {viewBox: '0 0 34 8', 'aria-hidden': 'true'});
      mark.append(svg('path', {d: 'M0 4H34', stroke: colour, 'stroke-width': 2, 'stroke-dasharray': one.dash || 'none'}));
      if (one.dots) mark.append(svg('circle', {cx: 17, cy: 4, r: 3, fill: colour}));
      key.append(mark, html('span', '', label === undefined ? 'training' : label));
      entries.push(key);
    }
    keys.replaceChildren(...entries);
  }

  function nearest(points, iteration) {
    let low = 0, high = points.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (points[middle][0] < iteration) low = middle + 1; else high = middle;
    }
    if (low > 0 && iteration - points[low - 1][0] <= points[low][0] - iteration) --low;
    return points[low];
  }
  function drawHover(chart, withTip) {
    const {place, hoverLayer, tip, series, spec} = chart;
    if (place === null || hoverLayer === undefined) return;
    hoverLayer.replaceChildren();
    tip.hidden = !(withTip && hover !== null);
    if (hover === null) return;
    const x = place.px(hover);
    if (x < place.left - 1 || x > place.right + 1) { tip.hidden = true; return; }
    hoverLayer.append(svg('line', {class: 'cross', x1: x, x2: x, y1: place.top, y2: place.bottom}));
    const rows = [];
    for (const one of series) {
      const [iteration, value] = nearest(one.curve, hover);
      if (isFinite(value) && isFinite(place.py(value))) {
        hoverLayer.append(svg('circle', {class: 'dot', cx: place.px(iteration), cy: place.py(value), r: 4, fill: one.colour}));
      }
      const row = html('div'), dot = html('i');
      dot.style.background = one.colour;
      const label = one.kind === 'validation' ? one.run.name + ' ' + one.label : one.run.name;
      row.append(dot, html('span', '', iteration === hover ? label : label + ' @' + iteration), html('strong', '', short(value, 5)));
      rows.push(row);
    }
    tip.replaceChildren(html('b', '', 'iteration ' + hover + (spec.unit ? ' · ' + spec.unit : '')), ...rows);
    if (x > place.width / 2) { tip.style.right = (place.width - x + 12) + 'px'; tip.style.left = 'auto'; }
    else { tip.style.left = (x + 12) + 'px'; tip.style.right = 'auto'; }
  }

  function drawSamples() {
    const all = [];
    for (const run of runs.values()) if (run.shown) all.push(...run.samples);
    const steps = [...new Set(all.map(sample => sample.iteration))].sort((a, b) => a - b);
    $('samples').hidden = steps.length === 0;
    if (steps.length === 0) return;
    let index = sampleStep === null ? steps.length - 1 : steps.indexOf(sampleStep);
    if (index < 0) index = steps.length - 1;
    const iteration = steps[index];
    $('sample-at').textContent = 'iteration ' + iteration;
    $('older').disabled = index === 0;
    $('newer').disabled = index === steps.length - 1;
    $('older').onclick = () => { sampleStep = steps[index - 1]; drawSamples(); };
    $('newer').onclick = () => { sampleStep = index + 1 === steps.length - 1 ? null : steps[index + 1]; drawSamples(); };
    const blocks = all.filter(sample => sample.iteration === iteration).map(sample => {
      const block = html('article', 'sample'), head = html('h3'), dot = html('i'), text = html('p');
      dot.style.background = sample.run.colour;
      head.append(dot, html('span', '', sample.run.name));
      text.append(html('span', 'prompt', sample.prompt), html('span', '', sample.text));
      block.append(head, text);
      return block;
    });
    $('sample-list').replaceChildren(...blocks);
  }

  function draw() {
    let last = -1, first = Infinity;
    for (const run of runs.values()) {
      if (!run.shown || run.train.length === 0) continue;
      first = Math.min(first, run.train[0][1]);
      last = Math.max(last, run.train[run.train.length - 1][1]);
    }
    const share = Number($('window').value);
    const from = share < 1 && first < last ? last - share * (last - first) : -Infinity;
    const any = [...runs.values()].some(run => run.train.length + run.validation.size > 0);
    $('empty').hidden = any;
    $('controls').hidden = !any;
    for (const chart of charts) { chart.card.hidden = false; drawChart(chart, from); }
    drawSamples();
    document.body.dataset.records = String(totalRecords);
    document.body.dataset.updates = String(updates);
  }

  // ---- news ----------------------------------------------------------------------------------
  function status(kind, text) {
    $('status').className = kind;
    $('status').lastElementChild.textContent = text;
  }
  function duration(seconds) {
    if (seconds < 90) return Math.round(seconds) + ' s';
    if (seconds < 5400) return Math.round(seconds / 60) + ' min';
    if (seconds < 129600) return Math.round(seconds / 3600) + ' h';
    return Math.round(seconds / 86400) + ' d';
  }
  async function ask(path) {
    const response = await fetch(path, {cache: 'no-store'});
    if (!response.ok) throw new Error(response.status + ' ' + path);
    return response.json();
  }
  async function news() {
    const answer = await ask('api/runs');
    const present = new Set(answer.runs.map(info => info.id));
    let changed = false;
    for (const [id, run] of runs) {
      if (present.has(id)) continue;
      run.button.remove();
      runs.delete(id);
      changed = true;
    }
    for (const info of answer.runs) {
      let run = runs.get(info.id);
      if (run === undefined) { run = newRun(info); runs.set(info.id, run); changed = true; }
      run.age = info.age_seconds;
      let more = info.generation !== run.generation || info.num_records > run.next;
      while (more) {
        const part = await ask(`api/records?run=${info.id}&generation=${run.generation}&from=${run.next}`);
        changed = take(run, part) || changed;
        more = part.next < part.num_records;
        if (more && part.records.length === 0) break;
      }
    }
    totalRecords = 0;
    for (const run of runs.values()) totalRecords += run.next;
    if (changed) { ++updates; draw(); }
    const ages = [...runs.values()].map(run => run.age);
    if (ages.length === 0) status('quiet', 'no runs here yet');
    else if (Math.min(...ages) < 30) status('live', 'live');
    else status('quiet', 'last news ' + duration(Math.min(...ages)) + ' ago');
  }
  let wait = POLL_MS;
  async function loop() {
    try {
      await news();
      wait = POLL_MS;
    } catch (error) {
      status('lost', 'no connection');
      wait = Math.min(SLOWEST_POLL_MS, wait * 1.6);
    }
    setTimeout(loop, document.hidden ? Math.max(wait, 5 * POLL_MS) : wait);
  }

  for (const spec of CHARTS) charts.push(makeChart(spec));
  $('smoothing').addEventListener('input', () => { $('smoothing-value').textContent = $('smoothing').value; draw(); });
  $('log-scale').addEventListener('change', draw);
  $('window').addEventListener('change', draw);
  let resizing = 0;
  window.addEventListener('resize', () => { cancelAnimationFrame(resizing); resizing = requestAnimationFrame(draw); });
  draw();
  loop();
})();
