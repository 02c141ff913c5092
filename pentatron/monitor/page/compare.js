// SPDX-License-Identifier: Apache-2.0
// Options: what differs between runs, and two runs side by side.
import {$, html, say} from './dom.js';
import {change, state} from './state.js';
import {runs} from './data.js';

// Where a run keeps its things says nothing of what it is.
const PLACES = new Set(['save', 'load', 'metrics_file', 'tensorboard_dir', 'rank', 'local_rank']);

function optionsOf(run) {
  const about = run.about;
  const options = about !== null && about.run !== null && typeof about.run === 'object' ? about.run.options : null;
  return options !== null && typeof options === 'object' && !Array.isArray(options) ? options : null;
}
function text(value) { return value === undefined ? 'not told' : String(value); }

// By run: "lr 0.002 · seed 7", of the options whose value is not the same in all runs that tell them. What a run of another version does
// not tell is no difference.
export function differences(all) {
  const told = all.filter(run => optionsOf(run) !== null), result = new Map();
  if (told.length < 2) return result;
  const names = new Set(told.flatMap(run => Object.keys(optionsOf(run))));
  const tells = (run, name) => optionsOf(run)[name] !== undefined;
  const values = name => new Set(told.filter(run => tells(run, name)).map(run => text(optionsOf(run)[name])));
  const differing = [...names].filter(name => !PLACES.has(name) && values(name).size > 1).sort();
  for (const run of told) {
    result.set(run, differing.filter(name => tells(run, name)).map(name => `${name.replaceAll('_', '-')} ${text(optionsOf(run)[name])}`).join(' · '));
  }
  return result;
}

function fillSelect(select, chosen, names) {
  const want = names.join('\n');
  if (select.dataset.names !== want) {
    select.dataset.names = want;
    select.replaceChildren(...names.map(name => html('option', {value: name}, name)));
  }
  select.value = chosen;
}

export function comparedRuns() {
  const told = [...runs.values()].filter(run => run.info.starts > 0);
  if (told.length === 0) return [];
  const left = told.find(run => run.name === state.left) || told[0];
  const right = told.find(run => run.name === state.right) || told.find(run => run !== left) || left;
  return [left, right];
}

let drawn = '';
export function drawComparison() {
  const pair = comparedRuns();
  $('options').hidden = pair.length === 0;
  if (pair.length === 0) return;
  const names = [...runs.values()].filter(run => run.info.starts > 0).map(run => run.name);
  const [left, right] = pair;
  fillSelect($('left-run'), left.name, names);
  fillSelect($('right-run'), right.name, names);
  $('all-options').checked = state.all;
  const a = optionsOf(left), b = optionsOf(right);
  if (a === null || b === null) {
    drawn = '';
    $('option-rows').replaceChildren();
    say($('option-count'), 'loading');
    return;
  }
  // News alone do not take what somebody has marked in the table.
  const what = [left.id, left.aboutVersion, right.id, right.aboutVersion, state.all].join();
  if (drawn === what) return;
  drawn = what;
  const all = [...new Set([...Object.keys(a), ...Object.keys(b)])].sort();
  const differ = all.filter(name => text(a[name]) !== text(b[name]));
  const alone = left === right;
  say($('option-count'), alone ? `${all.length} options` : `${differ.length} of ${all.length} options differ`);
  $('all-options').disabled = alone;
  const rows = (state.all || alone ? all : differ).map(name => {
    const differs = text(a[name]) !== text(b[name]);
    return html('tr', {class: differs ? 'differs' : null}, html('th', {scope: 'row'}, name.replaceAll('_', '-')),
      html('td', {}, text(a[name])), html('td', {}, text(b[name])));
  });
  say($('left-head'), left.name);
  say($('right-head'), right.name);
  $('option-rows').replaceChildren(...rows);
}

export function listenToComparison() {
  $('left-run').addEventListener('change', () => change({left: $('left-run').value}));
  $('right-run').addEventListener('change', () => change({right: $('right-run').value}));
  $('all-options').addEventListener('change', () => change({all: $('all-options').checked}));
}
