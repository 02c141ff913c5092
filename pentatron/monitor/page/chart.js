// SPDX-License-Identifier: Apache-2.0
// One card: curves on a canvas, axes and the cross in SVG above it, each run's newest number under the title.
import {axisLabel, axisText, linearTicks, logTicks, short, timeTicks, whole} from './format.js';
import {html, say, svg} from './dom.js';
import {colourOf, dashesOf, markOf, swatch} from './look.js';
import {listen} from './chart_input.js';

const BOTTOM = 24, TOP = 8;
const MARK_WIDTH = 18, MARK_HEIGHT = 11, LEAST_MARK_HEIGHT = 8.5;

// Marks that could cover each other, by where they stand on the x axis.
function columnsOf(marks) {
  const columns = [];
  for (const mark of marks.sort((a, b) => a.x - b.x)) {
    const last = columns[columns.length - 1];
    if (last !== undefined && mark.x - last[last.length - 1].x < MARK_WIDTH) last.push(mark); else columns.push([mark]);
  }
  return columns;
}

// Moves marks as little as keeps them `gap` apart: those that would cover each other become a block around their mean.
// False: there is no room for so many; the numbers above the picture tell the runs apart.
function pushApart(marks, top, bottom) {
  const gap = Math.min(MARK_HEIGHT, (bottom - top) / marks.length);
  marks.sort((a, b) => a.y - b.y);
  const blocks = [];  // {first, count, sum}: the block's marks stand at sum / count + gap * number of the mark
  marks.forEach((mark, i) => {
    let block = {first: i, count: 1, sum: mark.y - gap * i};
    for (let last = blocks[blocks.length - 1]; last !== undefined && last.sum / last.count > block.sum / block.count; last = blocks[blocks.length - 1]) {
      block = {first: last.first, count: last.count + block.count, sum: last.sum + block.sum};
      blocks.pop();
    }
    blocks.push(block);
  });
  for (const block of blocks) {
    for (let i = block.first; i < block.first + block.count; ++i) {
      const y = block.sum / block.count + gap * i;
      marks[i].y = Math.min(bottom - gap * (marks.length - 1 - i), Math.max(top + gap * i, y));
    }
  }
  return gap >= LEAST_MARK_HEIGHT;
}

export class Chart {
  // spec: {id, title, unit, field, wide, zero, scale}; view: {state, range(), zoom(from, to), hover(x)}
  constructor(spec, view) {
    this.spec = spec;
    this.view = view;
    this.lines = [];
    this.place = null;
    this.hoverX = null;
    this.values = html('ul', {class: 'values', 'aria-label': `${spec.title}: newest value of each run`, tabindex: 0});
    this.canvas = html('canvas', {'aria-hidden': 'true'});
    this.over = svg('svg', {'aria-hidden': 'true'});
    this.tip = html('div', {class: 'tip', hidden: true});
    this.plot = html('div', {
      class: 'plot', tabindex: 0, role: 'group', 'aria-roledescription': 'chart', 'aria-describedby': 'chart-help',
      'aria-label': `${spec.title}${spec.unit ? ', ' + spec.unit : ''}`,
    }, this.canvas, this.over, this.tip);
    this.card = html('section', {class: spec.wide ? 'card wide' : 'card', id: 'chart-' + spec.id, 'aria-label': spec.title},
      html('div', {class: 'head'}, html('h2', {}, spec.title), html('span', {class: 'unit'}, spec.unit)), this.values, this.plot);
    listen(this);
  }

  // lines: [{run, points: [x, y, ...], raw, dots, label, end}], in the order of the runs
  show(lines) {
    this.lines = lines;
    this.card.hidden = lines.length === 0;
    this.tellValues();
    this.draw();
  }

  tellValues() {
    const old = this.values.children, scale = this.spec.scale || 1;
    this.lines.forEach((line, i) => {
      const look = [line.run.id, line.run.name, line.label, colourOf(line.run.id)].join();
      let item = old[i];
      if (item === undefined || item.dataset.look !== look) {
        item = html('li', {'data-look': look, title: `${line.run.name} ${line.label}`}, swatch(line.run.id, line.dots),
          html('b', {class: 'mark'}, markOf(line.run.id)), html('span', {class: 'name'}, line.dots ? line.label : line.run.name), html('strong', {}));
        if (old[i] === undefined) this.values.append(item); else this.values.replaceChild(item, old[i]);
      }
      say(item.lastElementChild, short(line.end === null ? NaN : line.end * scale));
    });
    // Many numbers stand without names: the table above has them, and the title of each.
    this.values.classList.toggle('many', this.lines.length > (this.spec.wide ? 16 : 6));
    while (old.length > this.lines.length) this.values.lastElementChild.remove();
    const trains = this.lines.filter(line => !line.dots);
    const data = this.card.dataset, last = trains.length > 0 ? trains[trains.length - 1] : null;
    data.lines = String(this.lines.length);
    data.points = String(this.lines.reduce((sum, line) => sum + line.points.length / 2, 0));
    data.value = last === null ? '' : String(last.end);
    data.x = last === null || last.points.length === 0 ? '' : String(last.points[last.points.length - 2]);
  }

  // ---- where things are --------------------------------------------------------------------------
  ranges() {
    const range = this.view.range(), {state} = this.view, scale = this.spec.scale || 1, logarithmic = state.log && this.spec.wide;
    let x0 = Infinity, x1 = -Infinity, y0 = Infinity, y1 = -Infinity;
    for (const line of this.lines) {
      for (const points of [line.points, line.raw]) {
        for (let i = 0; i < points.length; i += 2) {
          const x = points[i], y = points[i + 1];
          if (range !== null && (x < range.from || x > range.to)) continue;
          if (x < x0) x0 = x;
          if (x > x1) x1 = x;
          if (y === null || (logarithmic && y <= 0)) continue;
          if (y < y0) y0 = y;
          if (y > y1) y1 = y;
        }
      }
    }
    if (range !== null) { x0 = range.from; x1 = range.to; }
    if (!(x0 <= x1)) { x0 = 0; x1 = 1; }
    if (x0 === x1) x1 = x0 + 1;
    if (!(y0 <= y1)) { y0 = 0; y1 = 1; }
    y0 *= scale;
    y1 *= scale;
    if (logarithmic) {
      const grow = Math.max(0.02, 0.04 * Math.log(y1 / y0));
      return {x0, x1, y0: y0 * Math.exp(-grow), y1: y1 * Math.exp(grow), logarithmic: y0 > 0};
    }
    if (this.spec.zero) y0 = Math.min(0, y0);
    if (this.spec.top !== undefined) y1 = Math.max(y1, this.spec.top);
    const margin = y1 > y0 ? 0.05 * (y1 - y0) : Math.max(Math.abs(y1) * 0.05, 1e-12);
    return {x0, x1, y0: this.spec.zero && y0 === 0 ? 0 : y0 - margin, y1: y1 + margin, logarithmic: false};
  }

  layOut() {
    const width = this.plot.clientWidth, height = this.plot.clientHeight;
    const place = {...this.ranges(), width, height, top: TOP, bottom: height - BOTTOM, right: width - (this.spec.wide ? 24 : 20)};
    const most = Math.max(2, Math.floor(height / 48));
    place.yTicks = place.logarithmic ? logTicks(place.y0, place.y1, most) : linearTicks(place.y0, place.y1, most);
    place.left = Math.ceil(10 + 6.7 * Math.max(...place.yTicks.map(tick => short(tick).length), 2));
    const xMost = Math.max(2, Math.floor((place.right - place.left) / 70));
    place.xTicks = this.view.state.axis === 'time' ? timeTicks(place.x0, place.x1, xMost) : linearTicks(place.x0, place.x1, xMost, this.view.state.axis === 'iteration' ? [1, 2, 5, 10] : undefined);
    if (this.view.state.axis === 'iteration') place.xTicks = place.xTicks.filter(tick => Math.abs(tick - Math.round(tick)) < 1e-9);
    const {x0, x1, y0, y1, left, right, top, bottom} = place, scale = this.spec.scale || 1;
    place.px = x => left + (x - x0) / (x1 - x0) * (right - left);
    place.x = px => x0 + (px - left) / (right - left) * (x1 - x0);
    const low = Math.log(y0), high = Math.log(y1);
    place.py = place.logarithmic ? y => bottom - (Math.log(y * scale) - low) / (high - low) * (bottom - top)
                                 : y => bottom - (y * scale - y0) / (y1 - y0) * (bottom - top);
    return place;
  }

  // ---- drawing -----------------------------------------------------------------------------------
  draw() {
    if (this.card.hidden || this.plot.clientWidth === 0) { this.place = null; return; }
    const place = this.place = this.layOut();
    const ratio = Math.min(3, window.devicePixelRatio || 1);
    const w = Math.round(place.width * ratio), h = Math.round(place.height * ratio);
    if (this.canvas.width !== w || this.canvas.height !== h) { this.canvas.width = w; this.canvas.height = h; }
    const pen = this.canvas.getContext('2d');
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, place.width, place.height);
    this.drawGrid(pen, place);
    pen.save();
    pen.beginPath();
    pen.rect(place.left, place.top - 4, place.right - place.left + 2, place.bottom - place.top + 6);
    pen.clip();
    for (const line of this.lines) if (line.raw.length > 0) this.stroke(pen, line, line.raw, 1, 0.28);
    for (const line of this.lines) this.stroke(pen, line, line.points, 1.8, 1);
    pen.restore();
    this.drawAxes(place);
    this.drawHover();
  }

  // Behind the curves, so on the canvas too.
  drawGrid(pen, place) {
    pen.strokeStyle = getComputedStyle(this.plot).getPropertyValue('--grid');
    pen.lineWidth = 1;
    pen.setLineDash([]);
    pen.beginPath();
    for (const tick of place.yTicks) {
      const y = Math.round(place.py(tick / (this.spec.scale || 1))) + 0.5;
      pen.moveTo(place.left, y);
      pen.lineTo(place.right, y);
    }
    pen.stroke();
  }

  stroke(pen, line, points, width, opacity) {
    const {px, py, logarithmic} = this.place;
    pen.strokeStyle = pen.fillStyle = colourOf(line.run.id);
    pen.globalAlpha = opacity;
    pen.lineWidth = width;
    pen.lineJoin = 'round';
    pen.setLineDash(line.dots ? [4, 4] : dashesOf(line.run.id));
    pen.beginPath();
    let down = false;
    const singles = [];
    for (let i = 0; i < points.length; i += 2) {
      const y = points[i + 1];
      if (y === null || (logarithmic && y <= 0)) { down = false; continue; }
      if (down) pen.lineTo(px(points[i]), py(y));
      else {
        pen.moveTo(px(points[i]), py(y));
        // One value between gaps would leave no trace.
        const next = points[i + 3];
        if (next === undefined || next === null) singles.push(i);
      }
      down = true;
    }
    pen.stroke();
    pen.setLineDash([]);
    const dots = line.dots && points.length <= 400 ? Array.from({length: points.length / 2}, (_, i) => 2 * i) : singles;
    for (const i of dots) {
      const y = points[i + 1];
      if (y === null || (logarithmic && y <= 0)) continue;
      pen.beginPath();
      pen.arc(px(points[i]), py(y), line.dots ? 3.4 : 2, 0, 7);
      pen.fill();
    }
    pen.globalAlpha = 1;
  }

  drawAxes(place) {
    const {left, right, top, bottom, px} = place, layer = svg('g'), scale = this.spec.scale || 1;
    for (const tick of place.yTicks) {
      const y = place.py(tick / scale);
      if (y < top - 1 || y > bottom + 1) continue;
      layer.append(svg('text', {x: left - 7, y: y + 4, 'text-anchor': 'end'}, short(tick)));
    }
    let free = -Infinity;
    for (const tick of place.xTicks) {
      const x = px(tick), text = axisText(this.view.state.axis, tick), half = text.length * 3.4;
      layer.append(svg('line', {class: 'tick', x1: x, x2: x, y1: bottom, y2: bottom + 4}));
      if (x - half < free || x + half > place.width) continue;
      free = x + half + 10;
      layer.append(svg('text', {x, y: bottom + 18, 'text-anchor': 'middle'}, text));
    }
    layer.append(svg('line', {class: 'axis', x1: left, x2: right, y1: bottom, y2: bottom}));
    this.endMarks(layer, place);
    this.hoverLayer = svg('g');
    this.over.setAttribute('viewBox', `0 0 ${place.width} ${place.height}`);
    this.over.replaceChildren(layer, this.hoverLayer);
  }

  // Each run's number where its line ends, pushed apart where they would cover each other.
  endMarks(layer, place) {
    if (this.lines.filter(line => !line.dots).length < 2) return;
    const marks = [];
    for (const line of this.lines) {
      if (line.dots) continue;
      for (let i = line.points.length - 2; i >= 0; i -= 2) {
        const x = line.points[i], y = line.points[i + 1];
        if (y === null || x < place.x0 || x > place.x1 || (place.logarithmic && y <= 0)) continue;
        marks.push({x: place.px(x), y: Math.min(place.bottom, Math.max(place.top, place.py(y))), run: line.run});
        break;
      }
    }
    for (const column of columnsOf(marks)) {
      if (!pushApart(column, place.top, place.bottom)) continue;
      for (const mark of column) {
        const text = svg('text', {class: 'end', x: mark.x + 4, y: mark.y + 3.5}, markOf(mark.run.id));
        text.style.fill = colourOf(mark.run.id);
        layer.append(text);
      }
    }
  }

  // ---- the cross -----------------------------------------------------------------------------------
  setHover(x, withTip) {
    this.hoverX = x;
    this.withTip = withTip;
    this.drawHover();
  }
  // What stands under the cross: [{line, x, y}].
  underCross() {
    return this.lines.filter(line => line.points.length > 0).map(line => {
      const points = line.points;
      let low = 0, high = points.length / 2 - 1;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (points[2 * middle] < this.hoverX) low = middle + 1; else high = middle;
      }
      if (low > 0 && this.hoverX - points[2 * low - 2] <= points[2 * low] - this.hoverX) --low;
      return {line, x: points[2 * low], y: points[2 * low + 1]};
    });
  }
  drawHover() {
    const {place, tip} = this;
    if (place === null || this.hoverLayer === undefined) return;
    this.hoverLayer.replaceChildren();
    tip.hidden = true;
    if (this.hoverX === null) return;
    const x = place.px(this.hoverX), scale = this.spec.scale || 1;
    if (x < place.left - 1 || x > place.right + 1) return;
    this.hoverLayer.append(svg('line', {class: 'cross', x1: x, x2: x, y1: place.top, y2: place.bottom}));
    const found = this.underCross();
    for (const {line, x: at, y} of found) {
      if (y === null || (place.logarithmic && y <= 0)) continue;
      this.hoverLayer.append(svg('circle', {class: 'dot', cx: place.px(at), cy: place.py(y), r: 4, fill: colourOf(line.run.id)}));
    }
    if (!this.withTip) return;
    const rows = found.sort((a, b) => (b.y ?? -Infinity) - (a.y ?? -Infinity)).slice(0, 14).map(({line, y}) =>
      html('div', {}, swatch(line.run.id, line.dots), html('span', {}, markOf(line.run.id) + ' ' + line.run.name + (line.label ? ' ' + line.label : '')), html('strong', {}, short(y === null ? NaN : y * scale, 5))));
    if (found.length > rows.length) rows.push(html('small', {}, `and ${found.length - rows.length} more`));
    const {axis} = this.view.state;
    tip.replaceChildren(html('b', {}, axis === 'iteration' ? 'iteration ' + whole(this.hoverX) : axisText(axis, this.hoverX) + ' of ' + axisLabel(axis)), ...rows);
    tip.hidden = false;
    const right = x > place.width / 2;
    tip.style.right = right ? (place.width - x + 12) + 'px' : 'auto';
    tip.style.left = right ? 'auto' : (x + 12) + 'px';
  }
}
