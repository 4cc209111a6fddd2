import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import { clock, settled } from './page.mjs';
import { Live } from '../../../src/trainyard/page/static/live.js';
import { SessionEnded } from '../../../src/trainyard/page/static/session.js';

clock.install();

/** A WebSocket whose server is the test. */
class WebSocket {
  static OPEN = 1;
  static all = [];
  readyState = 0;
  sent = [];
  constructor(address, protocols) {
    Object.assign(this, { address: String(address), protocols });
    WebSocket.all.push(this);
  }
  send(text) {
    this.sent.push(JSON.parse(text));
  }
  /** As a browser: no message arrives after it, and the event of its end comes later. */
  close() {
    this.readyState = 2;
  }
  open() {
    this.readyState = 1;
    this.onopen();
  }
  frame(frame) {
    if (this.readyState === 1) this.onmessage({ data: JSON.stringify(frame) });
  }
  fail() {
    this.readyState = 3;
    this.onclose();
  }
}
globalThis.WebSocket = WebSocket;

const newest = () => WebSocket.all.at(-1);
const connections = () => WebSocket.all.length;
let live, events, session;

beforeEach(() => {
  clock.timers.clear();
  clock.now = 1000;
  WebSocket.all = [];
  globalThis.document = new document.constructor(); // without the listeners of another test's connection
  session = { secret: 'sec?ret~>', checks: 0, check: async () => void session.checks++ };
  live = new Live(session);
  events = [];
  for (const name of ['connected', 'frame', 'status', 'tick'])
    live.addEventListener(name, (event) => events.push(name === 'status' ? live.status : name === 'frame' ? event.detail.type : name));
  live.start();
});

/** Makes the page hidden, or seen again. */
function hide(isHidden) {
  document.hidden = isHidden;
  document.dispatchEvent(new Event('visibilitychange'));
}

/** A connection that has got its first frame, at Unix second 5000 of the server. */
function connect() {
  newest().open();
  newest().frame({ type: 'hello', now: 5000 });
}

test('it connects beside the page, with the secret in a protocol and never in the address', () => {
  assert.equal(newest().address, 'wss://host:8443/ui/v1/live');
  assert.deepEqual(newest().protocols, ['v1.trainyard.dev', 'base64url.bearer.authorization.k8s.io.c2VjP3JldH4-']);
});

test('without TLS the connection has none', () => {
  const { href } = location;
  location.href = 'http://localhost:1234/#/jobs';
  new Live(session).start();
  location.href = href;
  assert.equal(newest().address, 'ws://localhost:1234/v1/live');
});

test('it is live with the first frame, not with the connection', () => {
  assert.equal(live.status, 'connecting');
  newest().open();
  assert.deepEqual([live.status, events], ['connecting', ['connected']]);
  assert.deepEqual(newest().sent, [{ subscribe: ['jobs'] }]);
  newest().frame({ type: 'hello', now: 5000 });
  newest().frame({ type: 'jobs' });
  assert.deepEqual(events, ['connected', 'live', 'hello', 'jobs']);
});

test('topics are a set: it is sent when it changes, and with each new connection', async () => {
  live.subscribe(['jobs', 'job:a']); // before there is a connection
  connect();
  live.subscribe(['job:a', 'jobs', 'jobs']);
  live.subscribe(['jobs']);
  assert.deepEqual(newest().sent, [{ subscribe: ['job:a', 'jobs'] }, { subscribe: ['jobs'] }]);
  newest().fail();
  await clock.pass(500);
  newest().open();
  assert.deepEqual(newest().sent, [{ subscribe: ['jobs'] }]);
});

test('the time is that of the server, goes on while it is live, and stands still otherwise', async () => {
  assert.equal(live.now(), 0);
  connect();
  await clock.pass(2500);
  assert.equal(live.now(), 5002.5);
  newest().frame({ type: 'ranks' }); // a frame without a time
  await clock.pass(500);
  assert.equal(live.now(), 5003);
  newest().frame({ type: 'ping', now: 5010 });
  assert.equal(live.now(), 5010);
  newest().fail();
  await clock.pass(400);
  assert.equal(live.now(), 5010);
});

test('it ticks each second while it is live', async () => {
  await clock.pass(3000);
  connect();
  events.length = 0;
  await clock.pass(3000);
  assert.deepEqual(events, ['tick', 'tick', 'tick']);
});

test('a connection that is lost is stale, or connecting before the first frame', () => {
  newest().fail();
  assert.equal(live.status, 'connecting');
});

test('attempts are further and further apart, five seconds at most, and a frame begins anew', async () => {
  connect();
  newest().fail();
  assert.equal(live.status, 'stale');
  for (const pause of [500, 800, 1280, 2048, 3276.8, 5000, 5000]) {
    const before = connections();
    await clock.pass(pause - 1);
    assert.equal(connections(), before, `not before ${pause} ms`);
    await clock.pass(1);
    assert.equal(connections(), before + 1, `after ${pause} ms`);
    newest().fail();
  }
  assert.equal(session.checks, 7);
  await clock.pass(5000);
  connect();
  assert.equal(live.status, 'live');
  newest().fail();
  const before = connections();
  await clock.pass(500);
  assert.equal(connections(), before + 1);
});

test('a connection that opens without a frame does not begin anew', async () => {
  newest().fail();
  await clock.pass(500);
  newest().open();
  newest().fail();
  const before = connections();
  await clock.pass(799);
  assert.equal(connections(), before);
});

test('twenty seconds without a frame are a lost connection', async () => {
  connect();
  await clock.pass(20_000);
  assert.equal(live.status, 'live');
  const socket = newest();
  await clock.pass(1000);
  assert.deepEqual([live.status, socket.readyState], ['stale', 2]);
  socket.fail(); // its end comes later, and is not counted as that of the next one
  await clock.pass(500);
  assert.equal(connections(), 2);
});

test('a connection that never opens, or opens without a frame, is lost after twenty seconds, too', async () => {
  for (const opens of [false, true]) {
    const before = connections(), socket = newest();
    if (opens) socket.open();
    await clock.pass(20_000);
    assert.deepEqual([connections(), live.status], [before, 'connecting']);
    await clock.pass(1500 + 800);
    assert.deepEqual([socket.readyState, connections()], [2, before + 1]);
  }
});

test('the server says why it ends', async () => {
  connect();
  newest().frame({ type: 'bye', reason: 'the server stops' });
  assert.deepEqual([live.status, live.reason], ['stale', 'the server stops']);
  await clock.pass(500);
  newest().fail();
  assert.equal(live.reason, 'the server stops', 'it stays until the connection is back');
  await clock.pass(800);
  connect();
  assert.deepEqual([live.status, live.reason], ['live', '']);
  newest().frame({ type: 'bye' });
  assert.equal(live.reason, '');
});

test('it goes on after a request without an answer, and not after the end of the session', async () => {
  session.check = async () => { throw new TypeError('no connection'); };
  newest().fail();
  await clock.pass(500);
  assert.equal(connections(), 2);
  session.check = async () => { throw new SessionEnded(); };
  newest().fail();
  await clock.pass(60_000);
  assert.equal(connections(), 2);
});

test('a hidden page has no connection, and gets one at once when it is seen', async () => {
  connect();
  await clock.pass(1500);
  hide(true);
  assert.deepEqual([live.status, newest().readyState, live.now()], ['connecting', 2, 5001.5]);
  newest().fail();
  await clock.pass(60_000);
  assert.equal(connections(), 1);
  hide(false);
  assert.equal(connections(), 2);
  connect();
  assert.equal(live.status, 'live');
});

test('a page that is hidden while it waits for the next attempt makes none', async () => {
  newest().fail();
  hide(true);
  await clock.pass(60_000);
  assert.deepEqual([connections(), session.checks], [1, 0]);
});

test('a page that is hidden during the request of an attempt makes none, and one connection when it is seen', async () => {
  let finish;
  session.check = () => new Promise((resolve) => { finish = resolve; });
  newest().fail();
  await clock.pass(500);
  hide(true);
  hide(false);
  finish();
  await settled();
  assert.equal(connections(), 2);
});

test('a hidden page does not connect when it is loaded', () => {
  document.hidden = true;
  const before = connections();
  new Live(session).start();
  assert.equal(connections(), before);
});
