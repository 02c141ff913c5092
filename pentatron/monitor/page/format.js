// SPDX-License-Identifier: Apache-2.0
// Numbers, durations and axis ticks as texts.

function trimmed(value, digits) {
  const text = value.toPrecision(digits);
  if (text.includes('e')) return String(Number(text));
  return text.includes('.') ? text.replace(/\.?0+$/, '') : text;
}

// 0.00012 -> 1.2e−4, 123456 -> 123.5k; '–' for what is no number.
export function short(value, digits = 4) {
  if (value === null || value === undefined || !isFinite(value)) return '–';
  const size = Math.abs(value);
  if (size === 0) return '0';
  if (size < 1e-3) return value.toExponential(Math.max(0, digits - 2)).replace(/\.?0*e-/, 'e−');
  if (size >= 1e15) return value.toExponential(Math.max(0, digits - 2)).replace(/\.?0*e\+/, 'e');
  for (const [limit, letter] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e4, 'k']]) {
    if (size >= limit) return trimmed(value / (letter === 'k' ? 1e3 : limit), digits) + letter;
  }
  return trimmed(value, digits);
}

export function whole(value) {
  return value === null || !isFinite(value) ? '–' : Math.round(value).toLocaleString('en-US');
}

// 75 s, 3 h 20 min: two units at most.
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !isFinite(seconds)) return '–';
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return seconds < 10 && seconds > 0 ? trimmed(seconds, 2) + ' s' : s + ' s';
  if (s < 3600) return Math.floor(s / 60) + ' min' + (s < 600 && s % 60 ? ' ' + (s % 60) + ' s' : '');
  if (s < 86400) return Math.floor(s / 3600) + ' h' + (Math.floor(s / 60) % 60 ? ' ' + (Math.floor(s / 60) % 60) + ' min' : '');
  return Math.floor(s / 86400) + ' d' + (Math.floor(s / 3600) % 24 ? ' ' + (Math.floor(s / 3600) % 24) + ' h' : '');
}

const AXES = {
  iteration: {label: 'iteration', text: value => value >= 1e6 ? short(value, 6) : whole(value)},
  tokens: {label: 'tokens', text: value => short(value, 4)},
  time: {label: 'training time', text: duration},
};
export function axisLabel(axis) { return AXES[axis].label; }
export function axisText(axis, value) { return AXES[axis].text(value); }

function niceStep(span, most, factors) {
  const power = 10 ** Math.floor(Math.log10(span / most));
  for (const factor of factors) if (factor * power * most >= span * 0.999999) return factor * power;
  return 10 * power;
}

export function linearTicks(low, high, most, factors = [1, 2, 2.5, 5, 10]) {
  const step = niceStep(high - low, most, factors), ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9 && ticks.length < 40; ++i) ticks.push(i * step);
  return ticks;
}

// Of whole seconds, minutes, hours or days.
export function timeTicks(low, high, most) {
  const units = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
  const step = units.find(unit => unit * most >= high - low);
  if (step === undefined || high - low < 2) return linearTicks(low, high, most);
  const ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high; ++i) ticks.push(i * step);
  return ticks;
}

export function logTicks(low, high, most) {
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
