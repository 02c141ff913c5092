// SPDX-License-Identifier: Apache-2.0
// All charts: what each draws, and the one view (x range, cross) that they share.
import {$} from './dom.js';
import {Chart} from './chart.js';
import {change, state} from './state.js';
import {shownRuns, wantedRange} from './data.js';

const GIB = 2 ** 30;
const SPECS = [
  {id: 'loss', title: 'Loss', unit: 'nats per token', field: 'lm_loss', wide: true, evaluations: true},
  {id: 'learning-rate', title: 'Learning rate', unit: '', field: 'learning_rate', zero: true},
  {id: 'gradient-norm', title: 'Gradient norm', unit: '', field: 'grad_norm'},
  {id: 'throughput', title: 'Throughput', unit: 'tokens/s', field: 'tokens_per_second', zero: true},
  {id: 'compute', title: 'Model compute', unit: 'TFLOP/s per rank', field: 'tflops_per_gpu', zero: true},
  {id: 'memory', title: 'Memory', unit: 'GiB', field: 'memory_reserved', scale: 1 / GIB, zero: true},
  {id: 'cpu', title: 'CPU utilisation', unit: '% of the process\u2019s CPUs', field: 'cpu_utilisation', scale: 100, zero: true, top: 100},
  {id: 'gpu', title: 'GPU utilisation', unit: '%', field: 'gpu_utilisation', scale: 100, zero: true, top: 100},
  {id: 'power', title: 'Power', unit: 'W per GPU', field: 'watts_per_gpu', zero: true},
];

const view = {
  state,
  range: wantedRange,
  zoom(from, to) { change({from, to: from === null ? null : to}); },
  hover(owner, x) {
    for (const chart of charts) chart.setHover(x, chart === owner);
  },
};
const charts = SPECS.map(spec => new Chart(spec, view));

export function addCharts() {
  for (const chart of charts) $('charts').append(chart.card);
}

// Buckets that the server thins the curves out to: two pixels each.
export function numBuckets() {
  const width = $('charts').clientWidth || 800;
  return Math.min(1500, Math.max(150, Math.ceil(width / 200) * 100));
}

const EVERY = [];  // no points
function linesOf(spec) {
  const lines = [];
  for (const run of shownRuns()) {
    if (run.curves === null) continue;
    const raw = run.curves.series[spec.field] || EVERY, smooth = run.curves.smooth[spec.field];
    const has = smooth !== undefined && smooth.length > 0;
    if (raw.length > 0) {
      lines.push({run, points: has ? smooth : raw, raw: has ? raw : EVERY, dots: false, label: '', end: raw[raw.length - 1]});
    }
    if (!spec.evaluations) continue;
    for (const set in run.curves.validation) {
      const points = run.curves.validation[set];
      lines.push({run, points, raw: EVERY, dots: true, label: 'validation' + (set ? ' ' + set : ''), end: points[points.length - 1]});
    }
  }
  return lines;
}

export function drawCharts() {
  for (const chart of charts) {
    const lines = linesOf(chart.spec);
    // What no run knows (a GPU, power) has no card.
    chart.show(lines);
  }
}
export function redrawCharts() {
  for (const chart of charts) chart.draw();
}
