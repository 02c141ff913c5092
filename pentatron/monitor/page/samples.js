// SPDX-License-Identifier: Apache-2.0
// Samples: for each prompt a row a run, its texts over the iterations side by side.
import {$, html, say} from './dom.js';
import {markOf, swatch} from './look.js';
import {shownRuns} from './data.js';
import {whole} from './format.js';

let step = null;  // iteration in view; null: the newest
const tracks = new Map();  // by run and prompt: {node, steps, version}

// What holds nothing to read says so in a line instead of filling the page.
function readable(text) {
  if (text.trim() !== '') return html('span', {}, text.replace(/\s*\n(\s*\n){2,}/g, '\n\n'));
  return html('em', {}, text.length === 0 ? 'empty' : `blank: ${whole(text.length)} characters`);
}

function track(run, prompt) {
  const key = run.id + ' ' + prompt;
  let one = tracks.get(key);
  if (one !== undefined && one.version === run.aboutVersion) return one;
  const samples = run.about.samples.filter(sample => sample.prompt === prompt);
  const cards = samples.map(sample => html('li', {'data-iteration': sample.iteration},
    html('h4', {}, 'iteration ' + whole(sample.iteration)), html('p', {}, html('span', {class: 'prompt'}, prompt), readable(sample.text))));
  const strip = html('ol', {class: 'strip', tabindex: 0, role: 'list', 'aria-label': `Samples of ${run.name}, oldest first`}, ...cards);
  const node = html('div', {class: 'track'}, html('h3', {}, swatch(run.id), html('b', {class: 'mark'}, markOf(run.id)), html('span', {}, run.name)), strip);
  one = {node, strip, version: run.aboutVersion, steps: samples.map(sample => sample.iteration)};
  tracks.set(key, one);
  return one;
}

// The first place is where a strip begins: only a reader's steps are a movement.
function scrollTo(one, iteration) {
  let best = null;
  for (const card of one.strip.children) if (Number(card.dataset.iteration) <= iteration) best = card;
  if (best === null) best = one.strip.firstElementChild;
  for (const card of one.strip.children) card.classList.toggle('now', card === best);
  if (best === null) return;
  one.strip.scrollTo({left: best.offsetLeft + best.offsetWidth - one.strip.clientWidth + 2, behavior: one.placed ? 'auto' : 'instant'});
  one.placed = true;
}

let drawn = '', scrolled = '';
export function drawSamples() {
  const all = shownRuns().filter(run => run.about !== null && run.about.samples.length > 0);
  $('samples').hidden = all.length === 0;
  if (all.length === 0) return;
  const prompts = [...new Set(all.flatMap(run => run.about.samples.map(sample => sample.prompt)))];
  const steps = [...new Set(all.flatMap(run => run.about.samples.map(sample => sample.iteration)))].sort((a, b) => a - b);
  const index = step === null || !steps.includes(step) ? steps.length - 1 : steps.indexOf(step);
  say($('sample-at'), 'iteration ' + whole(steps[index]));
  $('older').disabled = index === 0;
  $('newer').disabled = index === steps.length - 1;
  $('older').onclick = () => { step = steps[index - 1]; drawSamples(); };
  $('newer').onclick = () => { step = index + 1 === steps.length - 1 ? null : steps[index + 1]; drawSamples(); };
  const what = all.map(run => run.id + ':' + run.aboutVersion).join() + '|' + getComputedStyle(document.body).color;
  if (drawn !== what) {
    drawn = what;
    $('sample-list').replaceChildren(...prompts.map((prompt, i) => html('section', {class: 'prompt-block', 'aria-label': 'Prompt ' + (i + 1)},
      html('p', {class: 'prompt-line'}, html('span', {}, 'Prompt'), html('code', {}, prompt === '' ? '(empty)' : prompt)),
      ...all.filter(run => run.about.samples.some(sample => sample.prompt === prompt)).map(run => track(run, prompt).node))));
  }
  // News alone do not take a reader's place in the strips.
  const place = what + '|' + steps[index];
  if (scrolled === place) return;
  scrolled = place;
  for (const prompt of prompts) {
    for (const run of all) if (tracks.has(run.id + ' ' + prompt)) scrollTo(track(run, prompt), steps[index]);
  }
}
