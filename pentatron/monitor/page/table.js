// SPDX-License-Identifier: Apache-2.0
// The table of runs: which are shown, what differs between them, how far and how fast they are.
import {$, html, say} from './dom.js';
import {colourOf, markOf, swatch} from './look.js';
import {duration, short, whole} from './format.js';
import {change, state} from './state.js';
import {isShown, runs} from './data.js';
import {differences} from './compare.js';

const ORDER = {running: 0, stopped: 1, finished: 2};
const COLUMNS = [
  {key: 'name', title: 'Run', value: run => run.name},
  {key: 'state', title: 'State', value: run => ORDER[run.info.state]},
  {key: 'iteration', title: 'Iteration', value: run => run.info.iteration},
  {key: 'loss', title: 'Loss', value: run => run.info.loss, hint: 'of the newest step'},
  {key: 'best', title: 'Best loss', value: bestOf, hint: 'of validation where there is one, else of training'},
  {key: 'speed', title: 'Tokens/s', value: run => run.info.tokens_per_second, hint: 'mean of the newest 50 steps'},
  {key: 'eta', title: 'Time left', value: run => run.info.eta_seconds},
  {key: 'options', title: 'Options that differ'},
  {key: 'csv', title: 'CSV'},
];

function bestOf(run) { return run.info.best_validation ?? run.info.best_loss; }

function makeHead() {
  const row = html('tr');
  for (const column of COLUMNS) {
    const cell = html('th', {scope: 'col', class: 'col-' + column.key, 'data-sort': column.value ? column.key : null});
    if (column.value === undefined) cell.append(column.title);
    else {
      const button = html('button', {type: 'button', title: column.hint}, column.title, html('i', {'aria-hidden': 'true'}));
      button.addEventListener('click', () => change({sort: column.key, down: state.sort === column.key && !state.down}));
      cell.append(button);
    }
    row.append(cell);
  }
  $('run-head').replaceChildren(row);
}

function makeRow(run) {
  const toggle = html('button', {type: 'button', class: 'toggle'}, swatch(run.id), html('b', {class: 'mark'}, markOf(run.id)), html('span', {}, run.name));
  toggle.addEventListener('click', () => change({hidden: isShown(run) ? [...state.hidden, run.name] : state.hidden.filter(name => name !== run.name)}));
  const cells = {name: toggle};
  const row = html('tr', {'data-run': run.id, 'data-look': colourOf(run.id)});
  for (const {key} of COLUMNS) {
    const cell = html(key === 'name' ? 'th' : 'td', {class: 'col-' + key, scope: key === 'name' ? 'row' : null});
    if (key === 'name') cell.append(toggle);
    if (key === 'state') cell.append(html('span', {class: 'pill'}));
    if (key === 'iteration') cell.append(html('span'), html('progress', {max: 1, 'aria-label': 'share of the iterations'}));
    if (key === 'csv') cell.append(html('a', {href: 'api/csv?run=' + run.id, download: true, 'aria-label': 'CSV of ' + run.name}, '\u2193\u2009CSV'));
    cells[key] = cell;
    row.append(cell);
  }
  run.row = row;
  run.cells = cells;
  run.toggle = toggle;
}

function fillRow(run, differing) {
  const {info, cells} = run;
  run.toggle.setAttribute('aria-pressed', String(isShown(run)));
  run.toggle.title = (isShown(run) ? 'Hide ' : 'Show ') + run.name;
  const pill = cells.state.firstElementChild;
  pill.className = 'pill ' + info.state;
  say(pill, info.read_share < 0.999 ? `reading ${Math.floor(100 * info.read_share)} %` : info.state);
  cells.state.title = `file changed ${duration(info.age_seconds)} ago` + (info.bad_lines > 0 ? `; ${whole(info.bad_lines)} lines are no records` : '');
  const [count, progress] = cells.iteration.children;
  say(count, whole(info.iteration) + (info.train_iters > 0 ? ' / ' + whole(info.train_iters) : ''));
  progress.hidden = info.train_iters === 0;
  progress.value = info.train_iters > 0 ? Math.min(1, info.iteration / info.train_iters) : 0;
  say(cells.loss, info.num_records > 0 && info.loss === null ? 'not finite' : short(info.loss));
  cells.loss.classList.toggle('bad', info.num_records > 0 && info.loss === null);
  const best = bestOf(run), at = info.best_validation !== null ? info.best_validation_iteration : info.best_iteration;
  say(cells.best, short(best));
  cells.best.title = best === null ? '' : `${info.best_validation !== null ? 'validation' : 'training'}, iteration ${whole(at)}`;
  say(cells.speed, short(info.tokens_per_second));
  say(cells.eta, info.eta_seconds === null ? '–' : duration(info.eta_seconds));
  cells.eta.title = `${duration(info.seconds)} of training, ${short(info.tokens)} tokens so far`;
  const text = differing.get(run) || '';
  say(cells.options, text);
  cells.options.title = text;
}

function compare(a, b) {
  const {value} = COLUMNS.find(column => column.key === state.sort), sign = state.down ? -1 : 1;
  const x = value(a), y = value(b);
  if (x === y || (x ?? null) === (y ?? null)) return a.id - b.id;
  if (x === null || x === undefined) return 1;
  if (y === null || y === undefined) return -1;
  return sign * (typeof x === 'string' ? x.localeCompare(y, 'en', {numeric: true}) : x - y);
}

export function drawTable() {
  if ($('run-head').children.length === 0) makeHead();
  const all = [...runs.values()];
  const differing = differences(all);
  for (const run of all) {
    if (run.row === undefined || run.row.dataset.look !== colourOf(run.id)) makeRow(run);
    fillRow(run, differing);
  }
  const rows = all.sort(compare).map(run => run.row), body = $('run-rows');
  // Moving a row would take the focus from its button.
  if (rows.length !== body.children.length || rows.some((row, i) => row !== body.children[i])) {
    const focused = document.activeElement;
    body.replaceChildren(...rows);
    if (focused !== null && body.contains(focused)) focused.focus();
  }
  for (const cell of $('run-head').querySelectorAll('[data-sort]')) {
    const on = cell.dataset.sort === state.sort;
    cell.setAttribute('aria-sort', on ? (state.down ? 'descending' : 'ascending') : 'none');
  }
  const shown = all.filter(isShown).length;
  say($('shown-count'), `${shown} of ${all.length} shown`);
  $('show-all').disabled = shown === all.length;
  $('hide-all').disabled = shown === 0;
}

export function listenToTable() {
  $('show-all').addEventListener('click', () => change({hidden: []}));
  $('hide-all').addEventListener('click', () => change({hidden: [...runs.values()].map(run => run.name)}));
}
