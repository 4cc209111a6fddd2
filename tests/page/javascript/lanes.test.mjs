import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  exitText, hasExitCode, hasFailed, lanesText, replicaText, roleText, rowsOf,
} from '../../../src/trainyard/page/static/lanes.js';

process.env.TZ = 'UTC';

const segment = (phase, start, end = null, exitCode = null, reason = '') => ({ phase, start, end, exitCode, reason });
const lane = (replica, segments = [], attempt = 1) => ({ replica, role: replica.replace(/-\d+$/, ''), attempt, segments });
const replicas = (number) => Array.from({ length: number }, (_, index) => lane(`worker-${index}`));
const row = (...lanes) => rowsOf(lanes)[0];

test('each replica has a row, with all of its attempts', () => {
  assert.deepEqual(rowsOf([]), []);
  const rows = rowsOf([lane('worker-0'), lane('worker-1'), lane('worker-0', [], 2)]);
  assert.deepEqual(rows.map(({ name, y, height, isRole, lanes }) => [name, y, height, isRole, lanes.length]),
    [['worker-0', 0, 22, false, 2], ['worker-1', 22, 22, false, 1]]);
});

test('of more than forty replicas each role has a row', () => {
  assert.equal(rowsOf(replicas(40)).length, 40);
  assert.equal(rowsOf([...replicas(40), lane('worker-0', [], 2)]).length, 40, 'attempts do not count');
  const rows = rowsOf([...replicas(40), lane('master-0')]);
  assert.deepEqual(rows.map(({ name, y, height, isRole, lanes }) => [name, y, height, isRole, lanes.length]),
    [['worker', 0, 46, true, 40], ['master', 46, 46, true, 1]]);
  assert.equal(rowsOf(replicas(10_000))[0].lanes.length, 10_000);
  assert.equal(rowsOf(replicas(64), 200).length, 64, 'where there is room for more');
});

test('a run has failed if it ended with an exit code but those of success and of SIGTERM', () => {
  const ends = [[0, false, false], [1, true, true], [137, true, true], [143, true, false], [-1, true, true], [null, false, false]];
  for (const [code, exit, failed] of ends) {
    assert.equal(hasExitCode(segment('running', 1, 2, code)), exit, String(code));
    assert.equal(hasFailed(segment('running', 1, 2, code)), failed, String(code));
  }
  assert.equal(hasFailed(segment('running', 1, null, 1)), false, 'it has not ended');
  assert.equal(hasFailed(segment('waiting', 1, 2, 1)), false, 'it did not run');
});

test('an exit code has its reason if that tells more', () => {
  const exits = [[null, 'OOMKilled', ''], [undefined, '', ''], [0, 'Completed', '0'], [1, 'Error', '1'], [1, '', '1'],
    [137, 'OOMKilled', '137 (OOMKilled)'], [0, 'Evicted', '0 (Evicted)']];
  for (const [code, reason, text] of exits) assert.equal(exitText(code, reason), text);
});

test('what a replica did at a time', () => {
  const worker = row(
    lane('worker-0', [segment('pending', 100, 110), segment('starting', 110, 120), segment('running', 120, 200, 137, 'OOMKilled')]),
    lane('worker-0', [segment('running', 300)], 2),
  );
  const texts = {
    99: 'worker-0 · 00:01:39 · no pod',
    100: 'worker-0 · attempt 1 · waits for a node since 00:01:40 until 00:01:50 · 0:10',
    110: 'worker-0 · attempt 1 · starts since 00:01:50 until 00:02:00 · 0:10',
    200: 'worker-0 · attempt 1 · runs since 00:02:00 until 00:03:20 · 1:20 · exit 137 (OOMKilled)',
    201: 'worker-0 · 00:03:21 · no pod',
    300: 'worker-0 · attempt 2 · runs since 00:05:00 · 1:40',
    400: 'worker-0 · attempt 2 · runs since 00:05:00 · 1:40',
    401: 'worker-0 · 00:06:41 · no pod',
  };
  for (const [time, text] of Object.entries(texts)) assert.equal(replicaText(worker, Number(time), 400), text);
});

test('where two attempts overlap the later one is told, and an unknown phase as it is', () => {
  const worker = row(lane('a-0', [segment('running', 100, 200, 0)]), lane('a-0', [segment('<i>', 150, 180)], 2));
  assert.equal(replicaText(worker, 150, 400), 'a-0 · attempt 2 · <i> since 00:02:30 until 00:03:00 · 0:30');
  assert.match(replicaText(worker, 190, 400), /attempt 1 · runs .* · exit 0$/);
});

test('how many replicas of a role run at a time', () => {
  const lanes = replicas(41).map(({ replica }, index) => lane(replica, [segment('pending', 100, 200), segment('running', 200, index ? null : 300)]));
  const role = row(...lanes);
  const texts = {
    99: 'worker · 00:01:39 · 0 run',
    100: 'worker · 00:01:40 · 0 run, 41 do not',
    200: 'worker · 00:03:20 · 41 run',
    299: 'worker · 00:04:59 · 41 run',
    300: 'worker · 00:05:00 · 40 run',
  };
  for (const [time, text] of Object.entries(texts)) assert.equal(roleText(role, Number(time)), text);
});

test('all lanes in a text', () => {
  assert.equal(lanesText([]), '0 attempts of 0 replicas. No run has failed.');
  assert.equal(lanesText([lane('a-0', [segment('running', 1, 2, 0)])]), '1 attempt of 1 replica. No run has failed.');
  const failing = (number) => Array.from({ length: number }, (_, index) => lane('a-0', [segment('running', 50, 60, 1)], index));
  assert.equal(lanesText(failing(1)), '1 attempt of 1 replica. 1 failed run: a-0 exit 1 at 00:01:00.');
  assert.match(lanesText(failing(8)), /^8 attempts of 1 replica. 8 failed runs: (a-0 exit 1 at 00:01:00(, |\.)){8}$/);
  assert.match(lanesText(failing(9)), /^9 attempts of 1 replica. 9 failed runs: (a-0 exit 1 at 00:01:00(, )?){8} and more\.$/);
});

test('a replica with GPUs has a lane of their use, and says it', () => {
  const use = new Map([['worker-1', { replica: 'worker-1', time: [100, 110], value: [97.4, null] }]]);
  const lanes = [lane('worker-0'), lane('worker-1', [segment('running', 90, 150), segment('waiting', 150, 160)]), lane('worker-2')];
  const rows = rowsOf(lanes, 40, use);
  assert.deepEqual(rows.map(({ y, height }) => [y, height]), [[0, 22], [22, 34], [56, 22]]);
  const text = (time) => replicaText(rows[1], time, 200).split(' · ').slice(4).join();
  assert.deepEqual([95, 105, 115, 155].map(text), ['', 'GPU 97 % busy', '', ''], 'before the first sample, and of an unknown one');
  assert.equal(rowsOf(lanes, 2, use)[0].height, 46, 'roles have none');
});
