// SPDX-License-Identifier: Apache-2.0
// How runs differ: by colour, then by dashes, and by their number at the line's end.
import {darkMode, svg} from './dom.js';

// At least 3 : 1 against the cards' ground, in either mode.
const LIGHT = ['#2a6fdb', '#c8541b', '#1a8a57', '#8e4ac8', '#c9304a', '#0b7f96', '#8a6a00', '#5b6472', '#b0308f', '#4a7d12', '#6155d8', '#a34a3c'];
const DARK = ['#6aa5ff', '#ff9556', '#4fd196', '#c594ff', '#ff7b8f', '#45c9e0', '#e0bb45', '#aeb8c8', '#f385d8', '#a3d65c', '#a8a0ff', '#e59a8c'];
const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3], [14, 4]];

export const NUM_COLOURS = LIGHT.length;
export function colourOf(id) { return (darkMode.matches ? DARK : LIGHT)[id % NUM_COLOURS]; }
export function dashesOf(id) { return DASHES[Math.floor(id / NUM_COLOURS) % DASHES.length]; }
// What people call it by: the picture's labels have no room for names.
export function markOf(id) { return String(id + 1); }

// A piece of the run's line.
export function swatch(id, evaluations = false) {
  const mark = svg('svg', {class: 'swatch', viewBox: '0 0 26 10', 'aria-hidden': 'true'});
  const line = svg('path', {d: 'M1 5H25', stroke: colourOf(id), 'stroke-width': 2.4, fill: 'none', 'stroke-dasharray': dashesOf(id).join(' ') || null});
  mark.append(line);
  if (evaluations) mark.append(svg('circle', {cx: 13, cy: 5, r: 3.4, fill: colourOf(id)}));
  return mark;
}
