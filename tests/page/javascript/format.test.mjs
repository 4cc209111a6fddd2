import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  age, bytes, clockTime, compareNames, count, dateTime, duration, plainLine, plural, short, toneOf,
} from '../../../src/trainyard/page/static/format.js';

process.env.TZ = 'UTC';

/** Runs a function in a time zone. */
function inZone(zone, check) {
  process.env.TZ = zone;
  try {
    check();
  } finally {
    process.env.TZ = 'UTC';
  }
}

test('the tone of a state', () => {
  const tones = {
    Running: 'run',
    Succeeded: 'done', Completed: 'done', Complete: 'done',
    '': 'idle', Suspended: 'idle', Terminating: 'idle', Stopped: 'idle', Deleted: 'idle', Unknown: 'idle',
    Failed: 'bad', Error: 'bad', OOMKilled: 'bad', CrashLoopBackOff: 'bad', ImagePullBackOff: 'bad', Evicted: 'bad',
    DeadlineExceeded: 'bad', ErrImageNeverPull: 'bad', UnexpectedAdmissionError: 'bad', NodeLost: 'bad',
    Pending: 'wait', Created: 'wait', Restarting: 'wait', ContainerCreating: 'wait', running: 'wait',
    constructor: 'wait', toString: 'wait',
  };
  for (const [state, tone] of Object.entries(tones)) assert.equal(toneOf(state), tone, state);
});

test('counts and plurals', () => {
  assert.equal(count(0), '0');
  assert.equal(count(14201), '14,201');
  assert.equal(count(-1234567), '-1,234,567');
  assert.deepEqual([0, 1, 2, 1000].map((value) => plural(value, 'rank')), ['0 ranks', '1 rank', '2 ranks', '1,000 ranks']);
});

test('a value has four significant digits, and a whole number all of its digits', () => {
  const values = [
    [null, ''], [undefined, ''], [0, '0'], [7, '7'], [14201, '14,201'], [0.41234, '0.4123'],
    [-2.000049, '-2'], [1234.56, '1235'], [1e-7, '1e-7'], [1.23456e-12, '1.235e-12'], ['nan', 'nan'], ['-inf', '-inf'], [1_234_567_890_123, '1,234,567,890,123'],
    [3.4028234663852886e38, '3.403e+38'], [-1e300, '-1e+300'],
  ];
  for (const [value, text] of values) assert.equal(short(value), text);
});

test('an age is in its largest unit', () => {
  const ages = [
    [0, '0s'], [0.9, '0s'], [119.99, '119s'], [120, '2m'], [7199, '119m'], [7200, '2h'], [172799, '47h'],
    [172800, '2d'], [86400 * 1000, '1000d'], [-5, '0s'],
  ];
  for (const [seconds, text] of ages) assert.equal(age(seconds), text, String(seconds));
});

test('a duration has seconds', () => {
  const durations = [
    [0, '0:00'], [9.99, '0:09'], [59, '0:59'], [60, '1:00'], [3599, '59:59'], [3600, '1:00:00'], [7451, '2:04:11'],
    [86399, '23:59:59'], [86400, '1d 0:00:00'], [3 * 86400 + 7451, '3d 2:04:11'], [-1, '0:00'],
  ];
  for (const [seconds, text] of durations) assert.equal(duration(seconds), text, String(seconds));
});

test('bytes are in binary units', () => {
  const sizes = [
    [0, '0 B'], [1, '1 B'], [1023, '1023 B'], [1024, '1.0 KiB'], [1536, '1.5 KiB'], [102_400, '100 KiB'],
    [1024 ** 2 - 513, '1023 KiB'], [1024 ** 2 - 512, '1.0 MiB'],
    [1024 ** 2, '1.0 MiB'], [1024 ** 3 - 1, '1.0 GiB'], [3.1 * 1024 ** 3, '3.1 GiB'], [1024 ** 4, '1.0 TiB'], [1024 ** 5, '1024 TiB'],
  ];
  for (const [value, text] of sizes) assert.equal(bytes(value), text, String(value));
});

test('times are those of the time zone here, also when the clocks change', () => {
  const midnight = Date.UTC(2026, 2, 29) / 1000;
  assert.equal(clockTime(midnight), '00:00:00');
  assert.equal(dateTime(midnight), '2026-03-29 00:00:00');
  assert.equal(dateTime(midnight + 86399.9), '2026-03-29 23:59:59');
  inZone('Europe/Berlin', () => {
    assert.equal(dateTime(midnight + 3599), '2026-03-29 01:59:59');
    assert.equal(dateTime(midnight + 3600), '2026-03-29 03:00:00'); // the hour from 2 to 3 does not exist
    const autumn = Date.UTC(2026, 9, 25) / 1000;
    assert.deepEqual([0, 3600].map((later) => clockTime(autumn + later)), ['02:00:00', '02:00:00']); // and this one twice
  });
  inZone('America/St_Johns', () => assert.equal(dateTime(midnight), '2026-03-28 21:30:00'));
  inZone('Pacific/Kiritimati', () => assert.equal(dateTime(midnight), '2026-03-29 14:00:00'));
});

test('a time that is not known', () => {
  for (const time of [null, undefined, 0, NaN]) {
    assert.equal(clockTime(time), '-');
    assert.equal(dateTime(time), '');
  }
});

test('a line is plain text', () => {
  const lines = [
    ['', ''], ['plain', 'plain'], ['with\ttab', 'with\ttab'], ['<b onclick="x()">&amp;', '<b onclick="x()">&amp;'],
    ['\x1b[1;31mred\x1b[0m', 'red'], ['\x1b[2Kdone\x1b[?25h', 'done'],
    ['\x1b]0;title\x07text', 'text'], ['\x1b]8;;http://host\x1b\\link\x1b]8;;\x1b\\', 'link'],
    ['\x1b[1mbold\x1b(B\x1b[m plain', 'bold plain'], // as `tput sgr0` writes it
    ['\x1b[38:2::255:0:0mred\x1b[>4;1m\x1b[<u', 'red'], ['\x1b7a\x1b8b\x1b=c\x1b>d\x1bMe\x1bcf', 'abcdef'],
    ['\x1bPq#0;2\x1b\\a\x1b_title\x1b\\b\x1b^x\x07c', 'abc'], ['\x9b31mred\x9b0m \x84x', 'red x'],
    ['\x1b[1 qa\x1b[!p', 'a'], ['\x1b[3', '[3'], ['\x1b]0;', ']0;'], ['end\x1b', 'end'], ['\x1b', ''],
    ['a\x00b\x07c\x08d\x7fe', 'abcde'], ['\x1b\x1b[31mx', 'x'], ['Zoë 雪 🚂', 'Zoë 雪 🚂'],
  ];
  for (const [line, text] of lines) assert.equal(plainLine(line), text, JSON.stringify(line));
});

test('of an overwritten line the last text is shown', () => {
  const lines = [
    ['10 %\r20 %\r30 %', '30 %'], ['10 %\r20 %\r', '20 %'], ['windows\r', 'windows'], ['\r\r', ''], ['a\r\rb', 'b'],
    ['10 %\r\x1b[32m20 %\x1b[0m\r\r', '20 %'],
  ];
  for (const [line, text] of lines) assert.equal(plainLine(line), text, JSON.stringify(line));
});

test('a long line of codes that are not ended takes no time', () => {
  const began = process.cpuUsage();
  assert.equal(plainLine('\x1b]0;'.repeat(100_000)), ']0;'.repeat(100_000));
  assert.equal(plainLine('\x1b[1'.repeat(100_000)), '[1'.repeat(100_000));
  assert.ok(process.cpuUsage(began).user < 2_000_000, 'it is linear: of a quadratic one this takes minutes');
});

test('names are ordered by their numbers', () => {
  const names = ['worker-10', 'worker-2', 'master-0', 'worker-1', 'Worker-3'];
  assert.deepEqual(names.sort(compareNames), ['master-0', 'worker-1', 'worker-2', 'Worker-3', 'worker-10']);
});
