// SPDX-License-Identifier: Apache-2.0
// Pointer and keys of a chart: a cross that all charts share, zoom by dragging, by + and -, pan by Shift and arrows.
import {axisText, short} from './format.js';
import {$, say} from './dom.js';
import {markOf} from './look.js';

const KEY_STEP = 0.02;  // of the width

function listenToPointer(chart) {
  const {plot} = chart;
  const at = event => event.clientX - plot.getBoundingClientRect().left;
  let start = null;
  const band = document.createElement('div');
  band.className = 'band';
  band.hidden = true;
  plot.append(band);
  const clamp = x => Math.min(chart.place.right, Math.max(chart.place.left, x));

  plot.addEventListener('pointerdown', event => {
    if (chart.place === null || event.button !== 0) return;
    start = clamp(at(event));
    plot.setPointerCapture(event.pointerId);
  });
  plot.addEventListener('pointermove', event => {
    if (chart.place === null) return;
    const x = clamp(at(event));
    if (start !== null && Math.abs(x - start) > 6) {
      band.hidden = false;
      band.style.left = Math.min(x, start) + 'px';
      band.style.width = Math.abs(x - start) + 'px';
    }
    chart.view.hover(chart, chart.place.x(x));
  });
  plot.addEventListener('pointerup', event => {
    if (start === null || chart.place === null) return;
    const from = start, to = clamp(at(event));
    start = null;
    band.hidden = true;
    if (Math.abs(to - from) > 6) chart.view.zoom(chart.place.x(Math.min(from, to)), chart.place.x(Math.max(from, to)));
  });
  plot.addEventListener('pointercancel', () => { start = null; band.hidden = true; });
  plot.addEventListener('pointerleave', () => { if (start === null) chart.view.hover(chart, null); });
  plot.addEventListener('dblclick', () => chart.view.zoom(null, null));
}

// What a screen reader says at the cross.
function speak(chart) {
  const values = chart.underCross().map(({line, y}) => `${markOf(line.run.id)} ${line.run.name} ${line.label || ''} ${short(y === null ? NaN : y * (chart.spec.scale || 1))}`);
  say($('spoken'), `${axisText(chart.view.state.axis, chart.hoverX)}: ${values.slice(0, 8).join('; ')}`);
}

function listenToKeys(chart) {
  chart.plot.addEventListener('keydown', event => {
    if (chart.place === null || event.ctrlKey || event.metaKey || event.altKey) return;
    const {x0, x1} = chart.place, span = x1 - x0, middle = chart.hoverX === null ? (x0 + x1) / 2 : chart.hoverX;
    const {view} = chart;
    const cross = x => { view.hover(chart, Math.min(x1, Math.max(x0, x))); speak(chart); };
    const sign = event.key === 'ArrowLeft' ? -1 : 1;
    switch (event.key) {
      case 'ArrowLeft':
      case 'ArrowRight':
        if (event.shiftKey) view.zoom(x0 + sign * 0.2 * span, x1 + sign * 0.2 * span);
        else cross(chart.hoverX === null ? (sign < 0 ? x1 : x0) : chart.hoverX + sign * KEY_STEP * span);
        break;
      case 'Home': cross(x0); break;
      case 'End': cross(x1); break;
      case '+':
      case '=': view.zoom(middle - (middle - x0) / 2, middle + (x1 - middle) / 2); break;
      case '-': view.zoom(middle - 2 * (middle - x0), middle + 2 * (x1 - middle)); break;
      case '0': view.zoom(null, null); break;
      case 'Escape': view.hover(chart, null); break;
      default: return;
    }
    event.preventDefault();
  });
  chart.plot.addEventListener('blur', () => chart.view.hover(chart, null));
}

export function listen(chart) {
  listenToPointer(chart);
  listenToKeys(chart);
}
