// SPDX-License-Identifier: Apache-2.0
// Nodes. Texts from files and models reach the page as text nodes only.

const SVG = 'http://www.w3.org/2000/svg';

export const $ = id => document.getElementById(id);

// html('td', {class: 'x', hidden: true}, 'text', node)
export function html(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}
function fill(node, attributes, children) {
  for (const key in attributes) {
    const value = attributes[key];
    if (value === false || value === undefined || value === null) continue;
    node.setAttribute(key, value === true ? '' : value);
  }
  node.append(...children.filter(child => child !== null && child !== undefined));
  return node;
}

// Puts `text` there unless it stands there: a live region speaks what changed.
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export const darkMode = matchMedia('(prefers-color-scheme: dark)');
