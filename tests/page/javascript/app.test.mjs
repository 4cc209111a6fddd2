import assert from 'node:assert/strict';
import { test } from 'node:test';

import { clock, texts } from './page.mjs';
import { drawn, job, jobsFrame } from './views.mjs';

process.env.TZ = 'UTC';
clock.install();

/** The connection of the page, which the test answers. */
class WebSocket {
  static OPEN = 1;
  readyState = 1;
  sent = [];
  constructor() {
    WebSocket.newest = this;
  }
  send(text) {
    this.sent.push(JSON.parse(text).subscribe);
  }
  close() {}
}
const frame = async (value) => {
  WebSocket.newest.onmessage({ data: JSON.stringify(value) });
  await drawn();
};

Object.assign(globalThis, { WebSocket, fetch: async () => new Response(JSON.stringify({ files: [], series: [], spread: [] })) });
sessionStorage.setItem('trainyard.session', 'secret');
for (const [tag, id] of [['header', 'header'], ['div', 'banner'], ['main', 'main']]) {
  const node = document.createElement(tag);
  node.setAttribute('id', id);
  document.body.append(node);
}
document.getElementById = (id) => document.body.querySelectorAll('header, div, main').find((node) => node.id === id);
const main = document.getElementById('main'), banner = document.getElementById('banner');
document.getElementById('banner').hidden = true;
location.hash = '#/';
// Views but the first are loaded when they are shown: then they are there at once.
await Promise.all(['job_view', 'compare_view', 'rank_view'].map((name) => import(`../../../src/trainyard/page/static/${name}.js`)));
await import('../../../src/trainyard/page/static/app.js');
await drawn();

/** The page goes to an address, as by a link. */
async function go(hash) {
  location.hash = hash;
  dispatchEvent(new Event('hashchange'));
  await drawn();
}

test('the page begins with the list of jobs, and subscribes to it', () => {
  WebSocket.newest.onopen();
  assert.deepEqual([document.title, texts(main, 'h1'), WebSocket.newest.sent.at(-1)], ['Jobs · Trainyard', ['Jobs'], ['devices', 'jobs', 'progress']]);
});

test('the header tells what is served, and by what right', async () => {
  await frame({ type: 'hello', now: 5000, cluster: '<kind>', mode: 'local', readOnly: true, forbidden: ['list <pods>'] });
  assert.deepEqual(['.cluster', '.tag', '.live'].map((name) => document.querySelector(name).textContent), ['<kind> · this machine', 'read-only', 'live']);
  const forbidden = document.querySelector('.forbidden');
  assert.deepEqual([forbidden.hidden, forbidden.textContent], [false, 'You may not list <pods>: what depends on it is missing here.']);
  await frame({ type: 'hello', cluster: '', mode: 'history', readOnly: false });
  assert.deepEqual(['.cluster', '.tag'].map((name) => document.querySelector(name).textContent), ['history', 'may change jobs']);
  assert.equal(forbidden.hidden, true);
});

test('a job is shown, with what it subscribes to, and its panels keep its elements', async () => {
  await frame(jobsFrame([job({}), job({ uid: 'zz', name: 'other' })]));
  await go('#/jobs/default/TFJob/mnist@01234567');
  const [title] = main.querySelectorAll('h1');
  assert.deepEqual([document.title, title.textContent, document.activeElement], ['mnist · TFJob · Trainyard', 'default/mnist', title]);
  assert.deepEqual(WebSocket.newest.sent.at(-1), ['job:0123456789', 'jobs', 'logs:0123456789:*']);
  await go('#/jobs/default/TFJob/mnist@01234567/logs');
  assert.equal(main.querySelector('h1'), title);
  await go('#/jobs/default/TFJob/other@zz');
  assert.notEqual(main.querySelector('h1'), title);
  assert.deepEqual(WebSocket.newest.sent.at(-1), ['job:zz', 'jobs', 'logs:zz:*']);
});

test('other addresses', async () => {
  for (const [hash, title] of [['#/nothing', 'No such page'], ['#/compare', 'Compare'], ['#/jobs/default/TFJob/mnist@01234567/ranks/<b>', '<b> · mnist'], ['#/', 'Jobs']]) {
    await go(hash);
    assert.equal(document.title, `${title} · Trainyard`);
  }
});

test('an address that is left before its view has come is not shown', async () => {
  location.hash = '#/compare';
  dispatchEvent(new Event('hashchange'));
  await go('#/nothing');
  assert.deepEqual(texts(main, 'h1'), ['No such page']);
  await go('#/');
});

test('keys are those of the view, and the button shows their list', async () => {
  const event = Object.assign(new Event('keydown', { cancelable: true }), { key: '/' });
  dispatchEvent(event);
  assert.deepEqual([event.defaultPrevented, document.activeElement], [true, main.querySelector('input[type=search]')]);
  document.body.querySelector('header button').click();
  assert.notEqual(document.querySelector('dialog[open]'), null);
  document.querySelector('dialog').close();
});

test('a choice is counted in the header', async () => {
  main.querySelectorAll('input[type=checkbox]')[0].dispatchEvent(new Event('change'));
  const link = document.body.querySelectorAll('nav a').find((node) => node.textContent.startsWith('Compare'));
  assert.deepEqual([link.textContent, link.getAttribute('href')], ['Compare (1)', '#/compare?jobs=0123456789&x=step'], 'with the axis that was seen');
});

test('when the connection is lost it says since when, and that goes when it is back', async () => {
  await frame({ type: 'ping', now: 5000 });
  await frame({ type: 'bye', reason: 'the <server> stops' });
  assert.deepEqual([banner.hidden, banner.textContent], [false, 'Not connected since 01:23:20 (the <server> stops). What you see is from then.']);
  assert.equal(document.documentElement.getAttribute('data-status'), 'stale');
  await clock.pass(500);
  await frame({ type: 'ping', now: 5001 });
  assert.deepEqual([banner.hidden, document.querySelector('.live').textContent], [true, 'live']);
});

test('a session that has ended leaves nothing of the page', async () => {
  globalThis.fetch = async () => new Response('{}', { status: 401 });
  await frame({ type: 'bye' });
  await clock.pass(500);
  assert.match(document.body.textContent, /^TrainyardThis link was used or is too old\. trainyard ui prints a new one\.$/);
});
