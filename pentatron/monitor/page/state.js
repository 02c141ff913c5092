// SPDX-License-Identifier: Apache-2.0
// What the reader chose. It stands in the address, so that a reload and a link show the same.

const DEFAULTS = {
  axis: 'iteration', smoothing: 0, log: false, window: 1, from: null, to: null, hidden: [], only: '', details: '',
  left: '', right: '', all: false, sort: 'name', down: false,
};
const AXES = ['iteration', 'tokens', 'time'];
const SORTS = ['name', 'state', 'iteration', 'loss', 'best', 'speed', 'eta'];
const listeners = [];

function number(text, low, high, otherwise) {
  const value = Number(text);
  return text !== null && text !== '' && isFinite(value) && value >= low && value <= high ? value : otherwise;
}

function fromAddress() {
  const words = new URLSearchParams(location.hash.slice(1)), state = {...DEFAULTS};
  if (AXES.includes(words.get('x'))) state.axis = words.get('x');
  if (SORTS.includes(words.get('sort'))) state.sort = words.get('sort');
  state.down = words.get('down') === '1';
  state.smoothing = number(words.get('smooth'), 0, 0.99, 0);
  state.log = words.get('log') === '1';
  state.window = number(words.get('last'), 0.01, 1, 1);
  state.from = number(words.get('from'), -1e18, 1e18, null);
  state.to = number(words.get('to'), -1e18, 1e18, null);
  if (state.from === null || state.to === null || state.from >= state.to) state.from = state.to = null;
  state.hidden = words.getAll('hide').slice(0, 64);
  for (const key of ['details', 'left', 'right']) state[key] = (words.get(key) || '').slice(0, 500);
  state.all = words.get('all') === '1';
  return state;
}

export const state = fromAddress();

function toAddress() {
  const words = new URLSearchParams();
  const put = (key, value, usual) => { if (value !== usual) words.set(key, String(value)); };
  put('x', state.axis, 'iteration');
  put('smooth', state.smoothing, 0);
  if (state.log) words.set('log', '1');
  put('last', state.window, 1);
  if (state.from !== null) {
    words.set('from', String(Number(state.from.toPrecision(9))));
    words.set('to', String(Number(state.to.toPrecision(9))));
  }
  for (const name of state.hidden) words.append('hide', name);
  for (const key of ['details', 'left', 'right']) put(key, state[key], '');
  if (state.all) words.set('all', '1');
  put('sort', state.sort, 'name');
  if (state.down) words.set('down', '1');
  const hash = words.toString();
  history.replaceState(null, '', hash ? '#' + hash : location.pathname);
}

// Changes the state and tells all who show it.
export function change(some) {
  Object.assign(state, some);
  toAddress();
  for (const listener of listeners) listener(some);
}
export function onChange(listener) { listeners.push(listener); }

window.addEventListener('hashchange', () => {
  Object.assign(state, fromAddress());
  for (const listener of listeners) listener(state);
});
