import assert from 'node:assert/strict';
import { test } from 'node:test';

import { createDeviceUse, useAt } from '../../../src/trainyard/page/static/device_use.js';

const settled = () => new Promise((resolve) => setImmediate(resolve));

/** A session that answers each request with a curve of the replicas that it names, or fails. */
function session() {
  const paths = [];
  let fails = false;
  return {
    paths,
    fail: () => { fails = true; },
    async request(path) {
      paths.push(path);
      if (fails) throw new Error('503');
      const replicas = decodeURIComponent(path.split('replicas=')[1]).split(',');
      return { json: async () => ({ series: replicas.map((replica) => ({ replica, time: [paths.length], value: [1] })) }) };
    },
  };
}

test('what is known is read once for replicas that do not change, and anew for others', async () => {
  const server = session(), news = [];
  const use = createDeviceUse(server, () => news.push(1));
  assert.equal(use('u', false, []).size, 0);
  assert.equal(server.paths.length, 0, 'a job without GPUs costs no request');
  assert.equal(use('u', false, ['worker-0']).size, 0);
  await settled();
  const known = use('u', false, ['worker-0']);
  assert.deepEqual([[...known.keys()], news.length, server.paths.length], [['worker-0'], 1, 1]);
  assert.equal(server.paths[0], 'jobs/u/series?names=gpu_utilization&points=500&replicas=worker-0');
  assert.equal(use('u', false, ['worker-0']), known, 'the same until there is news');
  use('u', true, ['worker-0', 'worker-1']);
  await settled();
  assert.deepEqual([...use('u', true, ['worker-0', 'worker-1']).keys()], ['worker-0', 'worker-1']);
  await settled();
  assert.equal(server.paths.length, 2, 'after the end it is read once');
});

test('a request that fails leaves the timeline without it', async () => {
  const server = session();
  server.fail();
  const use = createDeviceUse(server, () => assert.fail('no news'));
  use('u', true, ['worker-0']);
  await settled();
  assert.equal(use('u', true, ['worker-0']).size, 0);
});

test('a sample holds until the next one', () => {
  const use = { replica: 'worker-0', time: [10, 20], value: [5, null] };
  assert.deepEqual([9, 10, 19, 20].map((time) => useAt(use, time)), [null, 5, 5, null]);
  assert.equal(useAt(undefined, 1), null);
});
