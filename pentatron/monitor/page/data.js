// SPDX-License-Identifier: Apache-2.0
// The runs as the server tells them. Curves come thinned out to the width of the picture, and only what is new of them.
import {state} from './state.js';

export const FIELDS = ['lm_loss', 'grad_norm', 'learning_rate', 'tokens_per_second', 'memory_reserved', 'cpu_utilisation', 'gpu_utilisation', 'watts_per_gpu', 'tflops_per_gpu'];
export const runs = new Map();  // by id: {id, name, info, curves, about}

export async function ask(path) {
  const response = await fetch(path, {cache: 'no-store'});
  if (!response.ok) throw new Error(response.status + ' ' + path);
  return response.json();
}

export function isShown(run) { return !state.hidden.includes(run.name); }
export function shownRuns() { return [...runs.values()].filter(isShown); }
export function runNamed(name) { return [...runs.values()].find(run => run.name === name); }

// Where the newest of those that go on is; without one, the newest of all.
export function newestX() {
  const all = shownRuns().filter(run => run.curves !== null);
  const going = all.filter(run => run.info.state === 'running');
  return (going.length > 0 ? going : all).reduce((most, run) => Math.max(most, run.curves.end), -Infinity);
}
// The part of the x axis to draw; null: all.
export function wantedRange() {
  if (state.from !== null) return {from: state.from, to: state.to};
  const end = newestX();
  return state.window < 1 && end > 0 ? {from: end * (1 - state.window), to: end} : null;
}

// Points of x at `since` and behind are void.
function cut(points, since) {
  let keep = points.length;
  while (keep > 0 && points[keep - 2] >= since) keep -= 2;
  points.length = keep;
}
function take(run, answer) {
  if (answer.since === null || run.curves === null) {
    run.curves = answer;
    return;
  }
  for (const part of ['series', 'smooth']) {
    for (const field in answer[part]) {
      const points = run.curves[part][field] || (run.curves[part][field] = []);
      cut(points, answer.since);
      for (const value of answer[part][field]) points.push(value);
    }
  }
  const {generation, version, width, last, end, validation} = answer;
  Object.assign(run.curves, {generation, version, width, last, end, validation});
}

let asked = '';  // the view that the curves are for
// True: something changed.
export async function refreshRuns() {
  const answer = await ask('api/runs');
  const present = new Set(answer.runs.map(info => info.id));
  let changed = false;
  for (const id of runs.keys()) if (!present.has(id)) { runs.delete(id); changed = true; }
  for (const info of answer.runs) {
    const run = runs.get(info.id);
    if (run === undefined) {
      runs.set(info.id, {id: info.id, name: info.name, info, curves: null, about: null, aboutVersion: ''});
      changed = true;
    } else {
      changed = changed || run.info.version !== info.version || run.info.state !== info.state;
      run.info = info;
    }
  }
  return changed;
}

// Curves of shown runs that have news, or of all where the view is another one. True: something came.
export async function refreshCurves(buckets) {
  const range = wantedRange();
  const fixed = state.from !== null ? [state.from, state.to].join() : state.window;
  const view = [state.axis, state.smoothing, fixed, buckets].join(' ');
  const other = view !== asked;
  const wanted = shownRuns().filter(run => other || run.curves === null || run.curves.version !== run.info.version);
  if (wanted.length === 0) return false;
  // A window moves with its end, so its curves are asked for whole.
  const follow = !other && state.window === 1 && state.from === null;
  const ids = wanted.map(run => follow && run.curves !== null ? [run.id, run.curves.generation, run.curves.width, run.curves.last].join(':') : run.id);
  let path = `api/series?runs=${ids.join(',')}&fields=${FIELDS.join(',')}&axis=${state.axis}&buckets=${buckets}`;
  if (state.smoothing > 0) path += '&smoothing=' + state.smoothing;
  if (range !== null) path += `&from=${range.from}&to=${range.to}`;
  const answer = await ask(path);
  for (const part of answer.runs) {
    const run = runs.get(part.id);
    if (run !== undefined) take(run, part);
  }
  asked = view;
  return true;
}

// Options, layout and samples of a run, when they are not those that are here.
export async function refreshAbout(run) {
  const version = run.info.starts + ' ' + run.info.samples_version + ' ' + run.info.generation;
  if (run.aboutVersion === version) return false;
  run.about = await ask('api/run?run=' + run.id);
  run.aboutVersion = version;
  return true;
}
