import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import './page.mjs';
import { RequestFailed, Session, SessionEnded } from '../../../src/trainyard/page/static/session.js';

const KEY = 'trainyard.session';
let requests, answers;

/** The answer of a server, or the error of a connection. */
const answer = (status, value) => new Response(value === undefined ? null : JSON.stringify(value), { status });

beforeEach(() => {
  localStorage.clear();
  sessionStorage.clear();
  location.hash = '#/';
  [requests, answers] = [[], []];
  globalThis.fetch = async (path, options) => {
    requests.push([path, options, location.hash]);
    const next = answers.shift();
    if (next instanceof Error) throw next;
    return next;
  };
});

/** A session that has started with this secret. */
async function startedSession(secret = 'secret') {
  sessionStorage.setItem(KEY, secret);
  const session = new Session();
  await session.start();
  return session;
}

test('the token of the address becomes a session, and is gone from the address before it is sent', async () => {
  location.hash = '#token=a-b_c';
  answers = [answer(200, { session: 'new' })];
  const session = new Session();
  await session.start();
  const [[path, options, hash]] = requests;
  assert.deepEqual([path, options.method, JSON.parse(options.body)], ['v1/session', 'POST', { token: 'a-b_c' }]);
  assert.equal(hash, '#/');
  assert.deepEqual([session.secret, localStorage.getItem(KEY), sessionStorage.getItem(KEY)], ['new', 'new', 'new']);
});

test('a tab keeps its own session, and a new one has that of the newest link', async () => {
  localStorage.setItem(KEY, 'newest');
  assert.equal(new Session().secret, 'newest');
  assert.equal((await startedSession('own')).secret, 'own');
  assert.equal(requests.length, 0);
});

test('without a session the page has ended', async () => {
  let ends = 0;
  const session = new Session();
  session.onEnd = () => ends++;
  await assert.rejects(session.start(), SessionEnded);
  assert.deepEqual([ends, session.secret], [1, '']);
});

test('a token that was used leaves a session that the tab has', async () => {
  location.hash = '#token=used';
  answers = [answer(401, {})];
  assert.equal((await startedSession('own')).secret, 'own');
  sessionStorage.clear();
  location.hash = '#token=used';
  answers = [answer(401, {})];
  await assert.rejects(new Session().start(), SessionEnded);
});

test('a token is sent as it is', async () => {
  location.hash = '#token=abc%'; // a shell writes % after an output without an end of line
  answers = [answer(401, {})];
  await assert.rejects(new Session().start(), SessionEnded);
  assert.deepEqual(JSON.parse(requests[0][1].body), { token: 'abc%' });
});

test('without a connection a token is no end of the session', async () => {
  location.hash = '#token=x';
  answers = [new TypeError('no connection')];
  await assert.rejects(new Session().start(), TypeError);
});

test('a request has the secret, and its own headers', async () => {
  const session = await startedSession();
  answers = [answer(200, { a: 1 }), answer(200, {})];
  assert.deepEqual(await (await session.request('jobs/a')).json(), { a: 1 });
  await session.post('actions', { verb: 'delete' });
  assert.deepEqual(requests.map(([path, { method, headers, body }]) => [path, method, headers, body]), [
    ['v1/jobs/a', undefined, { Authorization: 'Bearer secret' }, undefined],
    ['v1/actions', 'POST', { 'Content-Type': 'application/json', Authorization: 'Bearer secret' }, '{"verb":"delete"}'],
  ]);
});

test('an answer that is no success has a sentence to show', async () => {
  const session = await startedSession();
  const cases = [
    [answer(409, { error: 'The job has changed.' }), 409, 'The job has changed.'],
    [answer(500, {}), 500, 'The server answered 500.'],
    [new Response('<html>Bad gateway', { status: 502 }), 502, 'The server answered 502.'],
    [answer(404), 404, 'The server answered 404.'],
  ];
  for (const [response, status, message] of cases) {
    answers = [response];
    await assert.rejects(session.request('x'), (error) => {
      assert.ok(error instanceof RequestFailed);
      assert.deepEqual([error.status, error.message], [status, message]);
      return true;
    });
  }
  assert.equal(session.secret, 'secret');
});

test('a session that is not accepted any more is forgotten', async () => {
  const session = await startedSession();
  let ends = 0;
  session.onEnd = () => ends++;
  localStorage.setItem(KEY, 'secret');
  answers = [answer(401, {})];
  await assert.rejects(session.check(), SessionEnded);
  assert.deepEqual([ends, session.secret, localStorage.getItem(KEY), sessionStorage.getItem(KEY)], [1, '', null, null]);
});

test('the end of a session does not forget that of a newer link', async () => {
  const session = await startedSession('old');
  localStorage.setItem(KEY, 'newer');
  answers = [answer(401, {})];
  await assert.rejects(session.request('x'), SessionEnded);
  assert.deepEqual([localStorage.getItem(KEY), sessionStorage.getItem(KEY)], ['newer', null]);
});

test('a download is a link with a ticket', async () => {
  const session = await startedSession();
  const links = [];
  document.body.addEventListener('click', (event) => links.push([event.target.href, event.target.download, event.target.isConnected]));
  answers = [answer(200, { ticket: 'a/b' })];
  await session.download('jobs/a/logs/x.log');
  assert.deepEqual(JSON.parse(requests[0][1].body), { path: 'jobs/a/logs/x.log' });
  assert.deepEqual(links, [['v1/download/a%2Fb', '', true]]);
  assert.equal(document.body.children.length, 0);
});
