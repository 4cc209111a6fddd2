import assert from 'node:assert/strict';
import { test } from 'node:test';

import { settled } from './page.mjs';
import { tensorBoardButton } from '../../../src/trainyard/page/static/tensorboard.js';

const opened = [], posts = [];
let failure = null;
document.body.addEventListener('click', ({ target }) => opened.push([...target.attributes]));
const session = {
  async post(...request) {
    posts.push(request);
    if (failure) throw failure;
    return new Response(JSON.stringify({ url: 'http://x.localhost/' }));
  },
};
const board = tensorBoardButton(session);
const [button, message] = board.root.children;
const press = async () => {
  button.click();
  await settled();
};

test('it is shown where a job has a TensorBoard, and its button where that runs', () => {
  for (const nothing of [null, undefined]) {
    board.show('a', nothing);
    assert.equal(board.root.hidden, true);
  }
  board.show('a', { pod: '', message: '<b>no image</b>' });
  assert.deepEqual([board.root.hidden, button.hidden, message.textContent], [false, true, 'TensorBoard does not run: <b>no image</b>']);
  board.show('a', { pod: 'p', message: '' });
  assert.deepEqual([board.root.hidden, button.hidden, message.textContent], [false, false, '']);
});

test('it opens a tab that gets no handle of this one', async () => {
  board.show('u1', { pod: 'p', message: '' });
  await press();
  assert.deepEqual(posts, [['forward', { job: 'u1' }]]);
  assert.deepEqual(opened, [[['href', 'http://x.localhost/'], ['target', '_blank'], ['rel', 'noopener noreferrer']]]);
  assert.equal(document.body.children.length, 0);
});

test('a refusal is shown until the next attempt, also when the job changes', async () => {
  failure = new Error('You may not');
  await press();
  assert.equal(message.textContent, 'You may not');
  board.show('u1', { pod: 'p', message: '' });
  assert.equal(message.textContent, 'You may not');
  failure = null;
  await press();
  assert.equal(message.textContent, '');
});
