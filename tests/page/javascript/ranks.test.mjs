import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  COLOURINGS, gpuText, hasGpu, isUnhealthy, metricTexts, nextUnhealthy, rankText, readRanks, stepText, summaryText,
} from '../../../src/trainyard/page/static/ranks.js';

/** The columns of a frame, of ranks with these fields. */
function columns(...ranks) {
  const names = [...new Set(ranks.flatMap((rank) => Object.keys(rank)))];
  const base = { replica: ranks.map((_, index) => `worker-${index}`), role: ranks.map(() => 'worker'), state: ranks.map(() => 'Running') };
  const own = Object.fromEntries(names.map((name) => [name, ranks.map((rank, index) => rank[name] ?? base[name]?.[index] ?? null)]));
  return { ...base, ...own };
}
const read = (...ranks) => readRanks(columns(...ranks));
const states = (...names) => read(...names.map((state) => ({ state })));

test('no ranks', () => {
  for (const nothing of [undefined, {}, { replica: [], role: [], state: [] }]) {
    const list = readRanks(nothing);
    assert.deepEqual([list.ranks, list.median], [[], 0]);
    assert.equal(nextUnhealthy(list.ranks, '', 1), undefined);
    assert.equal(summaryText(list), '0 ranks: .');
  }
});

test('a rank has its columns, and what is not known is null', () => {
  const { ranks, columns: known } = read({ state: 'Failed', exitCode: 1, cpu: null, restarts: 0 });
  const { replica, state, tone, exitCode, cpu, memory, step, lag, behind, restarts } = ranks[0];
  assert.deepEqual({ replica, state, tone, exitCode, cpu, memory, step, lag, behind, restarts },
    { replica: 'worker-0', state: 'Failed', tone: 'bad', exitCode: 1, cpu: null, memory: null, step: null, lag: 0, behind: false, restarts: 0 });
  assert.deepEqual([...known].sort(), ['exitCode', 'replica', 'restarts', 'role', 'state'], 'of cpu nothing is known');
});

test('a rank is behind by more than a tenth of the median of its role, while it runs', () => {
  const behind = (fields) => read(fields).ranks[0].behind;
  assert.equal(behind({ step: 90, lag: 10 }), false);
  assert.equal(behind({ step: 89, lag: 11 }), true);
  assert.equal(behind({ step: null, lag: 1 }), true, 'it has reported no step, the others have');
  assert.equal(behind({ step: 0, lag: 0 }), false);
  assert.equal(behind({ step: 10, lag: 90, state: 'Succeeded' }), false);
  assert.equal(behind({ step: 10, lag: 90, state: 'Failed' }), false);
  assert.equal(behind({ step: 10, lag: -90 }), false, 'it is ahead');
});

test('the median is over the steps that are known', () => {
  assert.equal(read({ step: 9 }, { step: null }, { step: 100 }, { step: 20 }).median, 20);
  assert.equal(read({ step: 0 }).median, 0);
  assert.equal(read({ step: null }, { step: null }).median, 0);
});

test('who needs a look', () => {
  const unhealthy = ['Running', 'Failed', 'Pending', 'Succeeded', 'Suspended', 'Unknown'].filter((state) => isUnhealthy(states(state).ranks[0]));
  assert.deepEqual(unhealthy, ['Failed', 'Pending']);
  assert.ok(isUnhealthy(read({ step: 1, lag: 99 }).ranks[0]));
});

test('the next unhealthy rank, in both directions and around the end', () => {
  const { ranks } = states('Running', 'Failed', 'Running', 'Pending', 'Running');
  const next = (replica, direction) => nextUnhealthy(ranks, replica, direction)?.replica;
  assert.deepEqual(['', 'worker-0', 'worker-1', 'worker-2', 'worker-3', 'worker-4', 'nobody'].map((replica) => next(replica, 1)),
    ['worker-1', 'worker-1', 'worker-3', 'worker-3', 'worker-1', 'worker-1', 'worker-1']);
  assert.deepEqual(['', 'worker-0', 'worker-1', 'worker-2', 'worker-3', 'worker-4', 'nobody'].map((replica) => next(replica, -1)),
    ['worker-3', 'worker-3', 'worker-3', 'worker-1', 'worker-1', 'worker-3', 'worker-3']);
});

test('backwards it begins with the last rank', () => {
  const { ranks } = states('Failed', 'Failed', 'Failed');
  assert.deepEqual(['', 'nobody', 'worker-0'].map((replica) => nextUnhealthy(ranks, replica, -1).replica), Array(3).fill('worker-2'));
  assert.equal(nextUnhealthy(ranks, '', 1).replica, 'worker-0');
});

test('the only unhealthy rank is its own next one, and without any there is none', () => {
  for (const direction of [1, -1]) {
    for (const position of [0, 1, 2]) {
      const { ranks } = states(...[0, 1, 2].map((index) => (index === position ? 'Failed' : 'Running')));
      for (const replica of ['', 'worker-0', 'worker-1', 'worker-2'])
        assert.equal(nextUnhealthy(ranks, replica, direction), ranks[position]);
    }
    assert.equal(nextUnhealthy(states('Running', 'Succeeded').ranks, 'worker-0', direction), undefined);
  }
});

test('the colouring by lag', () => {
  const look = (fields) => { const list = read(fields); return COLOURINGS.lag.look(list.ranks[0], list); };
  assert.deepEqual(look({ step: 75, lag: 25 }), { tone: 'bad', level: 0.75 });
  assert.deepEqual(look({ step: 100, lag: 0 }), { tone: 'run', level: 1 });
  assert.deepEqual(look({ step: null, lag: 100 }), { tone: 'bad', level: 0 });
  assert.deepEqual(look({ step: null, lag: 0 }), { tone: 'run', level: null });
  assert.deepEqual(look({ step: 0, lag: 0 }), { tone: 'run', level: 0 });
  assert.deepEqual(look({ step: 5, lag: 0, state: 'Failed' }), { tone: 'bad', level: null });
  const list = read({ step: 1000, lag: 0 }, { step: 1400.5, lag: 0 }, { step: 10, lag: 990 });
  assert.deepEqual(COLOURINGS.lag.legend(list), [['run', 'at step 1,000'], ['bad', '1 more than 10 % behind']]);
  assert.deepEqual(COLOURINGS.lag.legend(read({ step: 5, lag: 0 })), [['run', 'at step 5']], 'none is behind');
});

test('the colouring by restarts', () => {
  const look = (restarts) => { const list = read({ restarts }); return COLOURINGS.restarts.look(list.ranks[0], list); };
  assert.deepEqual(look(0), { tone: 'run', level: 0 });
  assert.deepEqual([look(1).tone, look(4).tone, look(5).tone], ['wait', 'wait', 'bad']);
  assert.ok(look(1).level > 0 && look(4).level < 1);
  assert.equal(look(1_000_000).level, 1);
});

test('the colourings by usage are relative to the largest one', () => {
  const list = read({ cpu: 0.5, memory: 1024 ** 3 }, { cpu: 2, memory: null }, { cpu: 0, memory: 2 * 1024 ** 3 });
  const levels = (name) => list.ranks.map((rank) => COLOURINGS[name].look(rank, list).level);
  assert.deepEqual(levels('cpu'), [0.25, 1, 0]);
  assert.deepEqual(levels('memory'), [0.5, null, 1]);
  assert.equal(COLOURINGS.memory.look(list.ranks[1], list).tone, 'idle');
  assert.deepEqual(COLOURINGS.cpu.legend(list), [['accent', 'full cell: 2.0 cores']]);
  assert.deepEqual(COLOURINGS.memory.legend(list), [['accent', 'full cell: 2.0 GiB']]);
  const idle = read({ cpu: 0 });
  assert.equal(COLOURINGS.cpu.look(idle.ranks[0], idle).level, 0, 'and nothing of nothing is nothing');
});

test('the legend of states counts them', () => {
  assert.deepEqual(COLOURINGS.state.legend(states('Running', 'Pending', 'Running', 'Failed')),
    [['bad', 'Failed 1'], ['run', 'Running 2'], ['wait', 'Pending 1']]);
  assert.deepEqual(COLOURINGS.state.legend(states(...Array(10_000).fill('Running'))), [['run', 'Running 10,000']]);
});

test('the texts of a rank', () => {
  const [rank] = read({
    state: 'Failed', exitCode: 137, reason: 'OOMKilled', step: 1234.4, stepsPerSecond: 12.3456, cpu: 1.504,
    memory: 3 * 1024 ** 3, peak: 4 * 1024 ** 3, restarts: 1, node: 'n1',
    metrics: { step: 1234, loss: 0.412345, accuracy: 1, third: 3 },
  }).ranks;
  assert.equal(stepText(rank), 'step 1,234 (12.3/s)');
  assert.deepEqual(metricTexts(rank), ['loss 0.4123', 'accuracy 1', 'third 3']);
  assert.equal(rankText(rank), 'worker-0 · Failed · exit 137 · OOMKilled · step 1,234 (12.3/s) · loss 0.4123 · accuracy 1'
    + ' · CPU 150 % · 3.0 GiB (peak 4.0 GiB) · 1 restart · node n1');
});

test('what is not known is left out', () => {
  const [rank] = read({ restarts: 0 }).ranks;
  assert.equal(stepText(rank), '');
  assert.deepEqual(metricTexts(rank), []);
  assert.equal(rankText(rank), 'worker-0 · Running');
  assert.equal(rankText(read({ exitCode: 0, reason: 'Completed', state: 'Succeeded', cpu: 0, step: 0 }).ranks[0]),
    'worker-0 · Succeeded · exit 0 · step 0 · CPU 0 %');
  assert.equal(rankText(read({ reason: 'Failed', state: 'Failed' }).ranks[0]), 'worker-0 · Failed', 'a reason that is the state');
});

test('huge and tiny values of a program', () => {
  const [rank] = read({ metrics: { loss: 3.4028234663852886e38, rate: 1e-300, zero: 0 } }).ranks;
  assert.deepEqual(metricTexts(rank), ['loss 3.403e+38', 'rate 1e-300', 'zero 0']);
});

test('the summary names those that are behind, five at most', () => {
  assert.equal(summaryText(states('Running', 'Running', 'Failed')), '3 ranks: 1 Failed, 2 Running.');
  const behind = (number) => summaryText(read(...Array.from({ length: number }, () => ({ step: 1, lag: 99 }))));
  assert.equal(behind(1), '1 rank: 1 Running. 1 rank behind: worker-0.');
  assert.equal(behind(6), '6 ranks: 6 Running. 6 ranks behind: worker-0, worker-1, worker-2, worker-3, worker-4 and more.');
});

test('the GPUs of a rank', () => {
  const text = (fields) => gpuText(read(fields).ranks[0]);
  const GIB = 1024 ** 3;
  assert.equal(text({}), '');
  assert.equal(text({ gpu: 96.6, gpuMemory: 6 * GIB, gpuPeak: 7 * GIB }), 'GPU 97 %, 6.0 GiB, peak 7.0 GiB');
  assert.equal(text({ gpu: 0, gpuMemory: 0 }), 'GPU 0 %, 0 B');
  assert.equal(text({ gpuPeak: 7 * GIB }), 'GPU peak 7.0 GiB', 'of a rank that has ended');
  assert.deepEqual([hasGpu(read({ cpu: 1 })), hasGpu(read({ gpuPeak: 1 }))], [false, true]);
  const list = read({ gpu: 50 }, { gpu: null });
  assert.deepEqual(list.ranks.map((rank) => COLOURINGS.gpu.look(rank, list)), [{ tone: 'accent', level: 0.5 }, { tone: 'idle', level: null }]);
});
