import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import { texts } from './page.mjs';
import { element } from '../../../src/trainyard/page/static/dom.js';
import { handleKey } from '../../../src/trainyard/page/static/keys.js';

let pressed, view;

beforeEach(() => {
  localStorage.clear();
  document.body.replaceChildren();
  pressed = [];
  const keys = ['j', 'Enter', 'Escape', 'ArrowDown', ' ', '/', '1', '?'].map((key) => [key, () => void pressed.push(key)]);
  view = { keys: { ...Object.fromEntries(keys), x: () => false } };
});
/** Presses a key at an element of the page. Returns whether the browser does nothing of its own. */
function isTaken(node, key, options) {
  const event = Object.assign(new Event('keydown', { bubbles: true, cancelable: true }), { key, ...options });
  document.body.addEventListener('keydown', (event) => handleKey(event, view), { once: true });
  node.dispatchEvent(event);
  return event.defaultPrevented;
}
const inPage = (tag, attributes) => {
  const node = element(tag, attributes);
  document.body.append(node);
  return node;
};

test('a key of the view is taken, and what does nothing is left to the browser', () => {
  assert.equal(isTaken(document.body, 'j'), true);
  assert.deepEqual(pressed, ['j']);
  for (const key of ['x', 'q', 'Tab']) assert.equal(isTaken(document.body, key), false, key);
  view = null;
  assert.equal(isTaken(document.body, 'j'), false);
});

test('with Control, Alt or Meta, and when an element has taken it, a key is not ours', () => {
  for (const option of ['ctrlKey', 'metaKey', 'altKey']) assert.equal(isTaken(document.body, 'j', { [option]: true }), false);
  const node = inPage('div', { onkeydown: (event) => event.preventDefault() });
  isTaken(node, 'j');
  assert.deepEqual(pressed, []);
});

test('in a field keys are text, and Escape leaves it', () => {
  for (const [tag, attributes] of [['input', {}], ['input', { type: 'search' }], ['input', { type: 'range' }], ['select', {}], ['textarea', {}]]) {
    const node = inPage(tag, attributes);
    node.focus();
    for (const key of ['j', '/', 'Enter', ' ', '?']) assert.equal(isTaken(node, key), false, `${tag} ${key}`);
    assert.equal(document.activeElement, node);
    isTaken(node, 'Escape');
    assert.equal(document.activeElement, document.body);
  }
  assert.deepEqual(pressed, []);
  assert.equal(document.querySelector('dialog'), null);
});

test('what a button, a link or a box does itself is not ours', () => {
  const own = { a: ['Enter'], button: ['Enter', ' '], summary: ['Enter', ' '], input: [' '] };
  for (const [tag, keys] of Object.entries(own)) {
    const node = inPage(tag, tag === 'input' ? { type: 'checkbox' } : {});
    for (const key of ['Enter', ' ', 'j']) assert.equal(isTaken(node, key), !keys.includes(key), `${tag} ${key}`);
  }
});

test('the list of keys is shown once, takes no other key while it is open, and can turn off keys of one character', () => {
  handleKey('?', view);
  handleKey('?', view);
  const dialogs = document.body.querySelectorAll('dialog');
  assert.equal(dialogs.length, 1);
  assert.ok(texts(dialogs[0], 'kbd').includes('Space'));
  isTaken(document.body, 'j');
  assert.deepEqual(pressed, []);
  const box = dialogs[0].querySelector('input');
  box.checked = true;
  box.dispatchEvent(new Event('change'));
  dialogs[0].close();
  for (const key of ['j', '/', ' ', '1', '?']) isTaken(document.body, key);
  assert.deepEqual(pressed, []);
  for (const key of ['Enter', 'ArrowDown', 'Escape']) isTaken(document.body, key);
  assert.deepEqual(pressed, ['Enter', 'ArrowDown', 'Escape']);
  assert.equal(document.querySelector('dialog[open]'), null);
  box.checked = false;
  box.dispatchEvent(new Event('change'));
  isTaken(document.body, '?');
  assert.notEqual(document.querySelector('dialog[open]'), null);
});

test('the box of the list shows what another tab has set meanwhile', () => {
  handleKey('?', view);
  const dialog = document.querySelector('dialog'), box = dialog.querySelector('input');
  assert.equal(box.checked, false);
  dialog.close();
  localStorage.setItem('trainyard.keys.off', '1');
  handleKey('?', view);
  assert.deepEqual([document.querySelector('dialog'), box.checked], [dialog, true]);
  dialog.close();
});
