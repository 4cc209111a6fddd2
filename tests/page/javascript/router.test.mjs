import assert from 'node:assert/strict';
import { test } from 'node:test';

import { PANELS, compareAddress, jobAddress, jobsAddress, parseRoute } from '../../../src/trainyard/page/static/router.js';

const row = (fields) => ({ namespace: 'default', kind: 'TFJob', name: 'mnist', uid: '0123456789abcdef', ...fields });
const withoutQuery = ({ query, ...route }) => route;

test('the list of jobs', () => {
  for (const hash of ['', '#', '#/', '#//', '#/?', '#/?q=bert']) assert.equal(parseRoute(hash).view, 'jobs', hash);
  assert.equal(parseRoute('#/?q=kind%3Apytorch+bert&show=all').query.get('q'), 'kind:pytorch bert');
  assert.equal(parseRoute('#/').query.toString(), '');
});

test('an address of the page is read as it was written', () => {
  const jobs = [
    row({}),
    row({ namespace: 'team a', name: 'a/b?c#d&e=f' }),
    row({ name: 'Zoë 雪' }),
    row({ name: '100%' }),
    row({ name: '<b>' , kind: '../..'}),
    row({ uid: 'short' }),
  ];
  for (const job of jobs) {
    const parts = { namespace: job.namespace, kind: job.kind, name: job.name, run: job.uid.slice(0, 8) };
    assert.deepEqual(withoutQuery(parseRoute(jobAddress(job))), { view: 'job', ...parts, panel: '', rank: '' });
    for (const [panel] of PANELS)
      assert.deepEqual(withoutQuery(parseRoute(jobAddress(job, panel))), { view: 'job', ...parts, panel, rank: '' });
    const rank = parseRoute(jobAddress(job, 'ranks', 'worker-1/x'));
    assert.deepEqual(withoutQuery(rank), { view: 'rank', ...parts, panel: 'ranks', rank: 'worker-1/x' });
  }
});

test('a run may be left out', () => {
  const route = parseRoute('#/jobs/default/TFJob/mnist/logs?x=1');
  assert.deepEqual([route.view, route.name, route.run, route.panel, route.query.get('x')], ['job', 'mnist', '', 'logs', '1']);
});

test('a rank is one of the panel of ranks only', () => {
  assert.equal(parseRoute('#/jobs/ns/TFJob/a@1/ranks/').view, 'job');
  assert.equal(parseRoute('#/jobs/ns/TFJob/a@1/ranks/worker-0').view, 'rank');
  assert.equal(parseRoute('#/jobs/ns/TFJob/a@1/logs/worker-0').view, 'job');
});

test('what is no address of the page', () => {
  for (const hash of ['#/nothing', '#/jobs', '#/jobs/ns/TFJob', '#/jobs/ns/TFJob/a@1/nothing', '#/jobs/ns/TFJob/a/nothing/x',
    '#/compare/more', '#/job/ns/TFJob/a', '#/jobs/ns/TFJob/a/constructor'])
    assert.equal(parseRoute(hash).view, 'unknown', hash);
});

test('a part that is not encoded well stays as it is', () => {
  assert.deepEqual(withoutQuery(parseRoute('#/jobs/ns/TFJob/100%')),
    { view: 'job', namespace: 'ns', kind: 'TFJob', name: '100%', run: '', panel: '', rank: '' });
});

test('the address of the list leaves out what is empty', () => {
  assert.equal(jobsAddress({}), '#/');
  assert.equal(jobsAddress({ q: '', show: '' }), '#/');
  assert.equal(jobsAddress({ q: 'a&b=c #d', show: 'all' }), '#/?q=a%26b%3Dc+%23d&show=all');
  assert.equal(parseRoute(jobsAddress({ q: 'what? & why' })).query.get('q'), 'what? & why');
});

test('a question mark that an address was passed on with, or typed, is a part of its query', () => {
  assert.equal(parseRoute('#/?q=what?+why').query.get('q'), 'what? why');
  assert.equal(parseRoute('#/jobs/ns/TFJob/a/logs?x=?').query.get('x'), '?');
});

test('the address of a comparison', () => {
  assert.equal(compareAddress([], { x: 'time' }), '#/compare');
  assert.equal(compareAddress(['a', 'b'], {}), '#/compare?jobs=a,b');
  assert.equal(compareAddress(['a&b', 'c'], { x: 'time', metric: '' }), '#/compare?jobs=a%26b,c&x=time');
  const { view, query } = parseRoute(compareAddress(['a&b', 'c d'], { metric: 'eval/loss, mean' }));
  assert.deepEqual([view, query.get('jobs'), query.get('metric')], ['compare', 'a&b,c d', 'eval/loss, mean']);
});
