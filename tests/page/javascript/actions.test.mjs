import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import { settled, texts } from './page.mjs';
import { job } from './views.mjs';
import { createActions } from '../../../src/trainyard/page/static/actions.js';
import { RequestFailed } from '../../../src/trainyard/page/static/session.js';

let posts, answer, store, actions;
const offer = (verbs, scale = null, generation = 3) => ({ generation, verbs, scale });

beforeEach(() => {
  document.body.replaceChildren();
  [posts, answer] = [[], () => ({ message: 'Done: <b>deleted</b>' })];
  store = { hello: { mode: 'cluster' } };
  const session = { async post(path, value) { posts.push([path, value]); return new Response(JSON.stringify(await answer())); } };
  actions = createActions({ session, store });
  document.body.append(actions.root);
});
const row = job({ name: '<i>mnist' });
const buttons = () => actions.root.querySelectorAll('button');
const dialog = () => document.querySelector('dialog');
const message = () => actions.root.querySelector('p');
/** Answers the question: submits the form of the dialog, which closes it. */
async function agree() {
  dialog().querySelector('form').dispatchEvent(new Event('submit'));
  dialog()?.close();
  await settled();
}

test('what is offered has a button, with dots where it asks before', () => {
  actions.show(row, offer(['suspend', 'scale', 'delete'], { role: 'worker', replicas: 2, least: 1, most: 4 }));
  assert.deepEqual(buttons().map(({ textContent }) => textContent), ['Suspend ...', 'Scale ...', 'Delete ...']);
  const [suspend] = buttons();
  actions.show(row, offer(['resume']));
  assert.deepEqual([buttons().length, buttons()[0], suspend.textContent], [1, suspend, 'Resume'], 'one button, which keeps the focus');
  actions.show(row, null);
  assert.equal(buttons().length, 0);
});

test('an action asks before, as text, and then sends what it was asked about', async () => {
  actions.show(row, offer(['delete']));
  buttons()[0].click();
  assert.equal(dialog().hasAttribute('open'), true);
  assert.deepEqual(texts(dialog(), 'h2'), ['Delete TFJob <i>mnist?']);
  actions.show(row, offer(['delete'], null, 4)); // the job changes meanwhile: the server refuses it
  await agree();
  assert.deepEqual(posts, [['actions', { verb: 'delete', uid: row.uid, generation: 3 }]]);
  assert.deepEqual([message().textContent, message().getAttribute('data-tone'), dialog()], ['Done: <b>deleted</b>', '', null]);
});

test('Cancel sends nothing', async () => {
  actions.show(row, offer(['delete']));
  buttons()[0].click();
  dialog().querySelector('button').click();
  await settled();
  assert.deepEqual([posts, dialog()], [[], null]);
});

test('what is lost is told', () => {
  const consequence = (verb) => {
    actions.show(row, offer([verb], { role: 'worker', replicas: 2, least: null, most: null }));
    buttons()[0].click();
    const text = dialog().querySelector('p').textContent;
    dialog().close();
    return text;
  };
  assert.match(consequence('suspend'), /not saved is lost/);
  assert.match(consequence('scale'), /highest index first/);
  assert.match(consequence('delete'), /Nothing of it stays/);
  store.hello.mode = 'local';
  assert.match(consequence('delete'), /stays in the history/);
});

test('a number of replicas is within its bounds', async () => {
  const field = (scale) => {
    actions.show(row, offer(['scale'], { role: 'worker', replicas: 2, ...scale }));
    buttons()[0].click();
    return [...['min', 'max'].map((name) => dialog().querySelector('input').getAttribute(name)), dialog().querySelector('.muted').textContent];
  };
  assert.deepEqual(field({ least: 1, most: 4 }), ['1', '4', 'now 2, at least 1, at most 4']);
  dialog().close();
  assert.deepEqual(field({ least: null, most: null }), ['0', null, 'now 2']);
  dialog().close();
  assert.deepEqual(field({ least: 0, most: 0 }), ['0', '0', 'now 2, at least 0, at most 0']);
  dialog().querySelector('input').valueAsNumber = 3;
  await agree();
  assert.deepEqual(posts[0][1], { verb: 'scale', uid: row.uid, generation: 3, replicas: 3 });
});

test('resume does not ask, and while an answer is awaited nothing is sent', async () => {
  let finish;
  answer = () => new Promise((resolve) => { finish = resolve; });
  actions.show(row, offer(['resume']));
  buttons()[0].click();
  buttons()[0].click();
  assert.deepEqual([posts.length, message().textContent], [1, 'Waiting for the server ...']);
  finish({ message: 'Resumed' });
  await settled();
  buttons()[0].click();
  assert.equal(posts.length, 2);
});

test('it is said whether an action is known not to be done', async () => {
  const cases = [
    [new RequestFailed(409, '<changed>'), 'Not done: <changed>'],
    [new RequestFailed(499, 'no'), 'Not done: no'],
    [new RequestFailed(500, 'broken'), 'It is not known whether it was done: broken'],
    [new TypeError('failed to fetch'), 'It is not known whether it was done: the server of this page does not answer'],
  ];
  actions.show(row, offer(['resume']));
  for (const [error, text] of cases) {
    answer = () => { throw error; };
    buttons()[0].click();
    await settled();
    assert.deepEqual([message().textContent, message().getAttribute('data-tone')], [text, 'bad']);
  }
});

test('the focus of a button that goes is given to the title', () => {
  const title = document.createElement('h1');
  document.body.append(title);
  actions.show(row, offer(['delete']));
  buttons()[0].focus();
  actions.show(row, null);
  assert.equal(document.activeElement, title);
});
