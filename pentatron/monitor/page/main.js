// SPDX-License-Identifier: Apache-2.0
// The page: asks for news once a second and has each part draw itself.
import {$, darkMode, say} from './dom.js';
import {addCharts, drawCharts, numBuckets, redrawCharts} from './charts.js';
import {comparedRuns, drawComparison, listenToComparison} from './compare.js';
import {detailedRun, drawLayout, listenToLayout} from './layout.js';
import {drawSamples} from './samples.js';
import {drawTable, listenToTable} from './table.js';
import {duration} from './format.js';
import {refreshAbout, refreshCurves, refreshRuns, runs, shownRuns} from './data.js';
import {change, onChange, state} from './state.js';

const POLL_MS = 1000, SLOWEST_POLL_MS = 15000;
let updates = 0;

function showStatus(kind, text) {
  $('status').className = kind;
  say($('status').lastElementChild, text);
}

function showControls() {
  for (const button of document.querySelectorAll('[data-axis]')) button.setAttribute('aria-pressed', String(button.dataset.axis === state.axis));
  for (const button of document.querySelectorAll('[data-window]')) {
    button.setAttribute('aria-pressed', String(state.from === null && Number(button.dataset.window) === state.window));
  }
  $('smoothing').value = state.smoothing;
  say($('smoothing-value'), String(state.smoothing));
  $('log-scale').checked = state.log;
  $('unzoom').disabled = state.from === null;
}

function drawAll() {
  const any = [...runs.values()].some(run => run.info.num_records > 0);
  $('empty').hidden = any;
  $('content').hidden = !any;
  if (!any) return;
  drawTable();
  drawCharts();
  drawComparison();
  drawLayout();
  drawSamples();
  if (updates === 0) document.body.dataset.firstDrawn = String(Math.round(performance.now()));
  document.body.dataset.updates = String(++updates);
}

function tellStatus() {
  const all = [...runs.values()];
  if (all.length === 0) return showStatus('quiet', 'no runs here yet');
  const running = all.filter(run => run.info.state === 'running').length;
  if (running > 0) return showStatus('live', running === 1 ? '1 run live' : running + ' runs live');
  const age = Math.min(...all.map(run => run.info.age_seconds));
  return showStatus('quiet', 'last news ' + duration(age) + ' ago');
}

// One question at a time; a change meanwhile is asked for at once behind it.
let busy = false, again = false;
async function news() {
  if (busy) { again = true; return; }
  busy = true;
  try {
    do {
      again = false;
      let changed = await refreshRuns();
      changed = await refreshCurves(numBuckets()) || changed;
      if (changed) drawAll();
      tellStatus();
      let more = false;
      // Options and samples come behind the first picture.
      for (const run of new Set([detailedRun(), ...comparedRuns(), ...shownRuns(), ...runs.values()])) {
        if (run !== null && !again) more = await refreshAbout(run) || more;
      }
      if (more) drawAll();
    } while (again);
  } finally {
    busy = false;
  }
}

let wait = POLL_MS;
async function loop() {
  try {
    await news();
    wait = POLL_MS;
  } catch (error) {
    showStatus('lost', 'no connection');
    wait = Math.min(SLOWEST_POLL_MS, wait * 1.6);
  }
  setTimeout(loop, document.hidden ? Math.max(wait, 5 * POLL_MS) : wait);
}

function listenToControls() {
  for (const button of document.querySelectorAll('[data-axis]')) {
    button.addEventListener('click', () => change({axis: button.dataset.axis, from: null, to: null}));
  }
  for (const button of document.querySelectorAll('[data-window]')) {
    button.addEventListener('click', () => change({window: Number(button.dataset.window), from: null, to: null}));
  }
  $('smoothing').addEventListener('input', () => change({smoothing: Number($('smoothing').value)}));
  $('log-scale').addEventListener('change', () => change({log: $('log-scale').checked}));
  $('unzoom').addEventListener('click', () => change({from: null, to: null}));
}

addCharts();
listenToControls();
listenToTable();
listenToComparison();
listenToLayout();
onChange(() => {
  showControls();
  drawAll();
  news().catch(() => {});
});
showControls();
let resizing = 0;
addEventListener('resize', () => { cancelAnimationFrame(resizing); resizing = requestAnimationFrame(redrawCharts); });
darkMode.addEventListener('change', drawAll);
loop();
