import assert from 'node:assert/strict';
import { test } from 'node:test';

import { clock, nextFrame, settled, texts } from './page.mjs';
import {
  copyButton, element, oncePerFrame, reconcile, setAttribute, setState, setText, stateLabel,
} from '../../../src/trainyard/page/static/dom.js';

clock.install();

test('children that are no elements are text, whatever they contain', () => {
  const hostile = '<img src=x onerror="alert(1)">';
  const node = element('p', { title: hostile }, hostile, element('b', {}, hostile), 7, 0, '', null, undefined);
  assert.deepEqual(texts(node, 'b'), [hostile]);
  assert.equal(node.children.length, 1);
  assert.equal(node.textContent, `${hostile}${hostile}70`);
  assert.equal(node.getAttribute('title'), hostile);
});

test('attributes: true is empty, null, undefined and false are left out, and on... listens', () => {
  let clicks = 0;
  const node = element('input', { a: true, b: null, c: undefined, d: false, e: 0, f: '', onclick: () => clicks++ });
  assert.deepEqual([...node.attributes], [['a', ''], ['e', '0'], ['f', '']]);
  node.click();
  assert.equal(clicks, 1);
});

test('what stays the same is not set again', () => {
  const node = element('p', { title: '1' }, 'text');
  const [child] = node.childNodes;
  setText(node, 'text');
  assert.equal(node.childNodes[0], child);
  setText(node, 5);
  assert.equal(node.textContent, '5');
  node.setAttribute = () => assert.fail('it has that value');
  setAttribute(node, 'title', 1);
  setAttribute(node, 'title', null);
  assert.equal(node.hasAttribute('title'), false);
});

test('a state has a tone and a word', () => {
  const label = stateLabel();
  setState(label, '<Running>', 'run');
  assert.deepEqual([label.getAttribute('data-tone'), label.textContent], ['run', '<Running>']);
  setState(label, '', 'idle');
  assert.equal(label.textContent, '-');
});

/** Shows these keys, and returns the elements in their order with what was created, updated and removed. */
function show(parent, keys, spare) {
  const created = [], updated = [];
  const before = [...parent.children];
  reconcile(parent, keys, String, (key) => (created.push(key), element('li')), (node, key, index) => {
    updated.push([key, index]);
    setText(node, key);
  }, spare);
  return { created, updated, removed: before.filter((node) => !node.parentNode).length, shown: parent.children.map((node) => node.textContent) };
}

test('an item that stays keeps its element', () => {
  const parent = element('ul');
  show(parent, ['a', 'b', 'c']);
  const [a, b, c] = parent.children;
  const { created, updated, removed } = show(parent, ['c', 'a', 'd']);
  assert.deepEqual([created, updated, removed], [['d'], [['c', 0], ['a', 1], ['d', 2]], 1]);
  assert.deepEqual(parent.children.slice(0, 2), [c, a]);
  assert.equal(b.parentNode, null);
  show(parent, []);
  assert.equal(parent.children.length, 0);
});

test('elements in their order are not moved: one that is moved loses the focus', () => {
  const parent = element('ul');
  show(parent, ['a', 'b', 'c', 'd']);
  parent.insertBefore = () => assert.fail('nothing has to be moved');
  assert.deepEqual(show(parent, ['b', 'd']).shown, ['b', 'd']);
});

test('a key that comes twice has one element, with the last item', () => {
  const parent = element('ul');
  assert.deepEqual(show(parent, ['a', 'b', 'a']).shown, ['a', 'b']);
  assert.deepEqual(show(parent, ['a', 'b', 'a']).created, []);
});

test('elements that are not needed are used for other items', () => {
  const parent = element('ul'), spare = [];
  show(parent, ['a', 'b', 'c'], spare);
  const { children } = parent;
  const { created, shown } = show(parent, ['c', 'd', 'e', 'f'], spare);
  assert.deepEqual([created, shown, spare], [['f'], ['c', 'd', 'e', 'f'], []]);
  assert.deepEqual(new Set(parent.children.slice(1, 3)), new Set(children.slice(0, 2)));
});

test('any order after any other', () => {
  const parent = element('ul'), spare = [];
  let seed = 7;
  const random = () => (seed = (seed * 1103515245 + 12345) % 2 ** 31) / 2 ** 31;
  for (let round = 0; round < 500; round++) {
    const keys = Array.from({ length: 12 }, (_, index) => String(index)).filter(() => random() < 0.6).sort(() => random() - 0.5);
    const kept = new Map(parent.children.map((node) => [node.textContent, node]));
    assert.deepEqual(show(parent, keys, round % 2 ? spare : undefined).shown, keys);
    for (const node of parent.children) if (kept.has(node.textContent)) assert.equal(node, kept.get(node.textContent));
  }
});

test('ten thousand items', () => {
  const parent = element('ul'), keys = Array.from({ length: 10_000 }, (_, index) => String(index));
  assert.equal(show(parent, keys).created.length, 10_000);
  const { created, shown } = show(parent, keys);
  assert.equal(created.length, 0);
  assert.deepEqual(shown, keys);
});

test('a drawing is made once a frame, and again after an error', () => {
  let drawn = 0;
  const draw = oncePerFrame(() => {
    if (++drawn === 2) throw new Error('no drawing');
  });
  draw();
  draw();
  assert.equal(drawn, 0);
  nextFrame();
  nextFrame();
  assert.equal(drawn, 1);
  draw();
  assert.throws(nextFrame, /no drawing/);
  draw();
  nextFrame();
  assert.equal(drawn, 3);
});

test('a button says whether it has copied', async () => {
  const written = [];
  const clipboard = { writeText: async (text) => (text ? written.push(text) : Promise.reject(new Error('denied'))) };
  Object.defineProperty(globalThis, 'navigator', { value: { clipboard }, configurable: true });
  let text = 'kubectl get pods';
  const button = copyButton(() => text);
  button.click();
  await settled();
  assert.deepEqual([button.textContent, written], ['Copied', ['kubectl get pods']]);
  await clock.pass(1999);
  assert.equal(button.textContent, 'Copied');
  await clock.pass(1);
  assert.equal(button.textContent, 'Copy');
  text = '';
  button.click();
  await settled();
  assert.equal(button.textContent, 'Copy refused by the browser');
});
