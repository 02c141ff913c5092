// SPDX-License-Identifier: Apache-2.0
// How a run is laid out: what divides its ranks, what each pipeline stage holds, and a step of its schedule as a picture.
import {$, html, svg} from './dom.js';
import {runs} from './data.js';
import {change, state} from './state.js';
import {short, whole} from './format.js';

const GROUPS = [['tensor', 'Tensor'], ['pipeline', 'Pipeline'], ['virtual_pipeline', 'Virtual stages'], ['context', 'Context'], ['expert', 'Expert'], ['data', 'Data']];
const KINDS = {F: 'forward', B: 'backward', W: 'weight gradients'};
const MOST_SPANS = 6000;

function layoutOf(run) {
  const layout = run.about !== null && run.about.run !== null && typeof run.about.run === 'object' ? run.about.run.layout : null;
  return layout !== null && typeof layout === 'object' ? layout : null;
}
const list = value => Array.isArray(value) ? value : [];

export function detailedRun() {
  const told = [...runs.values()].filter(run => run.info.starts > 0);
  return told.find(run => run.name === state.details) || told.find(run => run.info.state === 'running') || told[0] || null;
}

function facts(layout) {
  const items = [['Ranks', whole(layout.world_size)]];
  for (const [key, title] of GROUPS) if (layout[key] > 1) items.push([title, whole(layout[key])]);
  if (layout.num_micro_batches > 0) items.push(['Micro-batches a step', whole(layout.num_micro_batches)]);
  if (layout.device) items.push(['Device', String(layout.device).slice(0, 40)]);
  return html('dl', {class: 'facts'}, ...items.map(([title, value]) => html('div', {}, html('dt', {}, title), html('dd', {}, value))));
}

function stageText(stage) {
  const parts = [];
  if (stage.embedding) parts.push('embedding');
  const count = stage.end_layer - stage.first_layer;
  if (count === 1) parts.push(`layer ${stage.first_layer}`);
  if (count > 1) parts.push(`layers ${stage.first_layer}–${stage.end_layer - 1}`);
  if (stage.loss) parts.push('loss');
  return parts.join(' · ') || 'nothing';
}

// Boxes in the order of the data, a column a pipeline rank.
function stagePicture(layout) {
  const stages = list(layout.stages).slice(0, 512), ranks = Math.max(1, layout.pipeline || 1);
  const grid = html('ol', {class: 'stages', tabindex: 0, 'aria-label': 'Pipeline stages'});
  grid.style.setProperty('--ranks', ranks);  // not as an attribute, which the content policy forbids
  stages.forEach((stage, i) => grid.append(html('li', {},
    html('b', {}, `rank ${i % ranks}` + (stages.length > ranks ? `, chunk ${Math.floor(i / ranks)}` : '')), html('span', {}, stageText(stage)))));
  return grid;
}

function schedulePicture(schedule) {
  const lanes = list(schedule.spans), total = Math.max(1e-9, schedule.total_time || 0), row = 24, left = 54, width = 1200;
  const height = lanes.length * row + 8;
  const picture = svg('svg', {class: 'schedule', viewBox: `0 0 ${width} ${height}`, role: 'img',
    'aria-label': `Schedule ${schedule.name}: ${lanes.length} pipeline ranks, ${short(100 * schedule.bubble_share, 3)} % bubble`});
  let drawn = 0;
  lanes.forEach((lane, rank) => {
    const y = rank * row + 4;
    picture.append(svg('text', {x: 0, y: y + 14}, 'rank ' + rank), svg('rect', {class: 'lane', x: left, y, width: width - left, height: row - 4}));
    for (const span of list(lane)) {
      if (!Array.isArray(span) || ++drawn > MOST_SPANS) break;
      const [kind, microBatch, chunk, begin, end] = span;
      if (KINDS[kind] === undefined) continue;
      const x = left + begin / total * (width - left), w = Math.max(0.5, (end - begin) / total * (width - left) - 0.8);
      picture.append(svg('rect', {class: 'work kind-' + kind + (chunk % 2 ? ' odd' : ''), x, y, width: w, height: row - 4, rx: Math.min(3, w / 4)},
        svg('title', {}, `${KINDS[kind]} of micro-batch ${microBatch}, chunk ${chunk}`)));
      if (w > 15) picture.append(svg('text', {class: 'on', x: x + w / 2, y: y + 14, 'text-anchor': 'middle'}, String(microBatch)));
    }
  });
  return picture;
}

function key() {
  return html('p', {class: 'key'}, ...Object.entries(KINDS).map(([kind, title]) => html('span', {}, html('i', {class: 'kind-' + kind}), title)), html('span', {}, html('i', {class: 'lane'}), 'bubble'));
}

let drawnFor = '';
export function drawLayout() {
  const told = [...runs.values()].filter(run => run.info.starts > 0), run = detailedRun();
  const layout = run === null ? null : layoutOf(run);
  $('layout').hidden = run === null || (run.about !== null && layout === null);
  if (run === null) return;
  const select = $('layout-run'), names = told.map(one => one.name);
  if (select.dataset.names !== names.join('\n')) {
    select.dataset.names = names.join('\n');
    select.replaceChildren(...names.map(name => html('option', {value: name}, name)));
  }
  select.value = run.name;
  const what = run.id + ' ' + run.aboutVersion;
  if (layout === null || drawnFor === what) return;
  drawnFor = what;
  const parts = [facts(layout)];
  if (list(layout.stages).length > 1) parts.push(html('h3', {}, 'Pipeline stages'), stagePicture(layout));
  const schedule = layout.schedule;
  if (schedule !== null && typeof schedule === 'object' && list(schedule.spans).length > 1) {
    parts.push(html('h3', {}, `One step by schedule ${schedule.name}, ${short(100 * schedule.bubble_share, 3)} % bubble (as planned)`),
      html('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Schedule of a step'}, schedulePicture(schedule)), key());
  }
  $('layout-body').replaceChildren(...parts);
}

export function listenToLayout() {
  $('layout-run').addEventListener('change', () => change({details: $('layout-run').value}));
}
