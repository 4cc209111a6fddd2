import assert from 'node:assert/strict';
import { test } from 'node:test';

import './page.mjs';
import { Store } from '../../../src/trainyard/page/static/store.js';

const COLUMNS = ['uid', 'namespace', 'kind', 'name', 'state', 'created', 'ended', 'live'];
const values = (uid, fields = {}) =>
  Object.values({ uid, namespace: 'default', kind: 'TFJob', name: 'mnist', state: 'Running', created: 100, ended: null, live: true, ...fields });
const jobs = (rows, fields = {}) => ({ type: 'jobs', columns: COLUMNS, rows, gone: [], reset: false, more: false, ...fields });

/** A store, and the names of its events with their detail. */
function startedStore() {
  const store = new Store(), events = [];
  for (const name of ['hello', 'jobs', 'progress', 'devices', 'job', 'gone', 'log'])
    store.addEventListener(name, (event) => events.push(event.detail === undefined ? [name] : [name, event.detail]));
  return { store, events };
}
const uids = (store) => [...store.jobs.keys()];

test('rows are objects by their columns', () => {
  const { store, events } = startedStore();
  store.apply(jobs([values('a')], { reset: true }));
  assert.deepEqual(store.jobs.get('a'),
    { uid: 'a', namespace: 'default', kind: 'TFJob', name: 'mnist', state: 'Running', created: 100, ended: null, live: true });
  assert.deepEqual(events, [['jobs']]);
});

test('texts that repeat are sent once, and times are relative to the creation', () => {
  const { store } = startedStore();
  const rows = [
    values('a', { kind: 0, state: 1, created: 100, ended: 20.5 }),
    values('b', { kind: 0, state: 2, created: 100, ended: null }),
    values('c', { kind: 0, state: 2, created: null, ended: 1234 }),
    values('d', { kind: 0, state: 1, created: 100, ended: 0 }),
  ];
  store.apply(jobs(rows, { reset: true, repeated: ['kind', 'state'], texts: ['TFJob', 'Failed', ''], relative: ['ended'] }));
  assert.deepEqual([...store.jobs.values()].map(({ kind, state, ended }) => [kind, state, ended]),
    [['TFJob', 'Failed', 120.5], ['TFJob', '', null], ['TFJob', '', 1234], ['TFJob', 'Failed', 100]]);
});

test('later frames change rows, add and remove them, and may leave out the columns', () => {
  const { store } = startedStore();
  store.apply(jobs([values('a'), values('b')], { reset: true }));
  store.apply({ type: 'jobs', rows: [values('b', { state: 'Failed' }), values('c')], gone: ['a', 'unknown'] });
  assert.deepEqual([...store.jobs.values()].map(({ uid, state }) => [uid, state]), [['b', 'Failed'], ['c', 'Running']]);
  store.apply({ type: 'jobs', gone: ['b'] });
  assert.deepEqual(uids(store), ['c']);
});

test('the first snapshot is shown as it comes, and is complete with its last part', () => {
  const { store, events } = startedStore();
  store.apply(jobs([values('a')], { reset: true, more: true }));
  assert.deepEqual([uids(store), store.complete], [['a'], false]);
  store.apply(jobs([values('b')], { more: true }));
  assert.deepEqual([uids(store), store.complete], [['a', 'b'], false]);
  store.apply(jobs([], {}));
  assert.deepEqual([uids(store), store.complete], [['a', 'b'], true]);
  assert.equal(events.length, 3);
});

test('a later snapshot replaces the rows at once', () => {
  const { store } = startedStore();
  store.apply(jobs([values('a'), values('b')], { reset: true }));
  store.apply(jobs([values('c')], { reset: true, more: true }));
  assert.deepEqual(uids(store), ['a', 'b'], 'none disappears before all have come');
  store.apply(jobs([values('b', { state: 'Failed' })]));
  assert.deepEqual(uids(store), ['c', 'b']);
  assert.equal(store.jobs.get('b').state, 'Failed');
});

test('an empty snapshot, and a snapshot that is cut off by the next one', () => {
  const { store } = startedStore();
  store.apply(jobs([], { reset: true }));
  assert.equal(store.complete, true);
  store.apply(jobs([values('a')], { reset: true, more: true }));
  store.apply(jobs([values('b')], { reset: true, more: true }));
  store.apply(jobs([values('c')]));
  assert.deepEqual(uids(store), ['b', 'c'], 'of the connection that was lost nothing stays');
  store.apply(jobs([], { reset: true }));
  assert.deepEqual(uids(store), []);
});

test('of a first snapshot that was cut off nothing stays but what the next one has', () => {
  const { store } = startedStore();
  store.apply(jobs([values('a'), values('b')], { reset: true, more: true }));
  store.apply(jobs([values('b')], { reset: true, more: true })); // of the next connection: a is gone
  assert.equal(store.complete, false);
  store.apply(jobs([values('c')]));
  assert.deepEqual([uids(store), store.complete], [['b', 'c'], true]);
});

test('a change before any snapshot does not make the list complete', () => {
  const { store } = startedStore();
  store.apply(jobs([values('a')]));
  assert.deepEqual([uids(store), store.complete], [['a'], false]);
});

test('ten thousand rows in parts', () => {
  const { store } = startedStore();
  for (let part = 0; part < 10; part++)
    store.apply(jobs(Array.from({ length: 1000 }, (_, index) => values(`${part}-${index}`)), { reset: !part, more: part < 9 }));
  assert.deepEqual([store.jobs.size, store.complete], [10_000, true]);
});

test('progress is kept by job', () => {
  const { store, events } = startedStore();
  const columns = ['uid', 'step', 'loss', 'shape', 'why'];
  store.apply({ type: 'progress', columns, rows: [['a', 1, 0.5, '09', ''], ['b', null, null, '', '']] });
  store.apply({ type: 'progress', columns, rows: [['a', 2, 0.25, '95', 'worker-1 lags']] });
  assert.deepEqual(store.progress.get('a'), { uid: 'a', step: 2, loss: 0.25, shape: '95', why: 'worker-1 lags' });
  assert.equal(store.progress.get('b').step, null);
  assert.deepEqual(events, [['progress'], ['progress']]);
});

test('what is known of a job is put together from its frames, in any order', () => {
  const frames = [
    { type: 'ranks', uid: 'a', columns: { replica: ['worker-0'] } },
    { type: 'events', uid: 'a', events: [{ reason: 'Started' }] },
    { type: 'actions', uid: 'a', actions: { verbs: ['delete'] } },
    { type: 'job', uid: 'a', job: { kind: 'TFJob' }, findings: [], timeline: [], forbidden: ['pods'], tensorboard: null },
  ];
  for (const order of [frames, [...frames].reverse()]) {
    const { store, events } = startedStore();
    order.forEach((frame) => store.apply(frame));
    assert.deepEqual(store.data.get('a'), {
      ranks: { replica: ['worker-0'] }, events: [{ reason: 'Started' }], actions: { verbs: ['delete'] },
      job: { kind: 'TFJob' }, findings: [], timeline: [], forbidden: ['pods'], tensorboard: null,
    });
    assert.deepEqual(events, Array(4).fill(['job', 'a']));
    assert.equal(store.data.get('b'), undefined);
  }
});

test('a newer frame of a job makes another object: views compare by identity', () => {
  const { store } = startedStore();
  const ranks = { replica: ['worker-0'] };
  store.apply({ type: 'ranks', uid: 'a', columns: ranks });
  const before = store.data.get('a');
  store.apply({ type: 'events', uid: 'a', events: [] });
  assert.notEqual(store.data.get('a'), before);
  assert.equal(store.data.get('a').ranks, ranks);
});

test('hello, lines of logs, the end of a job, and frames of a newer server', () => {
  const { store, events } = startedStore();
  const log = { type: 'log', uid: 'a', lines: [['worker-0', '<script>']], leftOut: 0 };
  store.apply({ type: 'hello', mode: 'local' });
  store.apply(log);
  store.apply({ type: 'gone', uid: 'a' });
  store.apply({ type: 'ping', now: 1 });
  store.apply({ type: 'unknown' });
  assert.equal(store.hello.mode, 'local');
  assert.deepEqual(events, [['hello'], ['log', log], ['gone', 'a']]);
});

test('the job of an address', () => {
  const { store } = startedStore();
  const find = (fields) => store.find({ namespace: 'default', kind: 'TFJob', name: 'mnist', run: '', ...fields })?.uid;
  assert.equal(find({}), undefined);
  store.apply(jobs([
    values('old00000-1', { created: 100, live: false }),
    values('older000-1', { created: 50, live: true }),
    values('new00000-1', { created: 300, live: false }),
    values('other000-1', { name: 'mnist2', created: 900 }),
    values('space000-1', { namespace: 'team', created: 900 }),
    values('torch000-1', { kind: 'PyTorchJob', created: 900 }),
  ], { reset: true }));
  assert.equal(find({}), 'older000-1', 'one that lives precedes those of the history');
  store.apply(jobs([], { gone: ['older000-1'] }));
  assert.equal(find({}), 'new00000-1', 'the newest of those of the history');
  assert.equal(find({ run: 'old00000' }), 'old00000-1');
  assert.equal(find({ run: 'torch000' }), 'torch000-1', 'a run is found whatever its kind');
  assert.equal(find({ run: 'nobody00' }), undefined);
  assert.equal(find({ kind: 'tfjob' }), 'new00000-1', 'the case of a kind does not matter');
  assert.equal(find({ kind: 'MPIJob' }), undefined);
  assert.equal(find({ namespace: 'team' }), 'space000-1');
});

test('a kind in its own case precedes, and a time that is not known comes last', () => {
  const { store } = startedStore();
  store.apply(jobs([
    values('lower', { kind: 'tfjob', created: 900 }), values('exact', { created: 100 }), values('never', { created: null }),
  ], { reset: true }));
  assert.equal(store.find({ namespace: 'default', kind: 'TFJob', name: 'mnist', run: '' }).uid, 'exact');
});

test('the lines of GPUs are passed on', () => {
  const { store, events } = startedStore();
  for (const lines of [['0 H100'], ['0 H100', 'device 0: used']]) store.apply({ type: 'devices', lines });
  assert.deepEqual(events, [['devices', ['0 H100']], ['devices', ['0 H100', 'device 0: used']]]);
});
