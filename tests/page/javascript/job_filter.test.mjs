import assert from 'node:assert/strict';
import { test } from 'node:test';

import { isInPart, jobFilter, toggleState } from '../../../src/trainyard/page/static/job_filter.js';

const row = (fields) => ({
  uid: 'a1', namespace: 'default', kind: 'PyTorchJob', name: 'bert', state: 'Running', message: '', live: true, ...fields,
});
const matches = (text, fields) => jobFilter(text)(row(fields));

test('all words must match, in any case and order', () => {
  assert.ok(matches('', {}));
  assert.ok(matches('  \t ', {}));
  assert.ok(matches('BERT', {}));
  assert.ok(matches('kind:pytorch state:RUN bert', {}));
  assert.ok(matches('bert  kind:pytorch', {}));
  assert.ok(!matches('kind:pytorch state:failed', {}));
  assert.ok(!matches('bert gpt', {}));
});

test('a word without a field is looked for in the name and the message', () => {
  assert.ok(matches('default/be', {}));
  assert.ok(matches('oom', { message: 'worker-3 was killed: OOM' }));
  assert.ok(!matches('running', {}), 'the state has a field');
  assert.ok(!matches('pytorch', {}));
});

test('each field looks at its column alone', () => {
  const fields = { uid: 'u-7', namespace: 'team', kind: 'TFJob', name: 'resnet', state: 'Failed' };
  for (const term of ['uid:u-7', 'ns:team', 'namespace:team', 'kind:tfjob', 'name:resnet', 'state:failed']) {
    assert.ok(matches(term, fields), term);
    assert.ok(!matches(term.replace(/:.*/, ':other'), fields), term);
  }
  assert.ok(matches('state:', fields), 'a field without a value matches all');
});

test('what is no field is a part of a name', () => {
  assert.ok(matches('host:8080', { message: 'no answer from host:8080' }));
  assert.ok(!matches('host:8080', {}));
  assert.ok(matches('kinds', { message: 'of all kinds' }), 'a field has a colon');
  assert.ok(matches(':', { message: 'a: b' }));
  assert.ok(!matches(':bert', {}));
  assert.ok(matches('.*', { message: 'a.*b' }), 'and no pattern');
  assert.ok(!matches('.*', {}));
});

test('a word may begin as a property that every object has', () => {
  for (const name of ['constructor', '__proto__']) {
    assert.ok(!matches(`${name}:x`, {}), name);
    assert.ok(matches(`${name}:x`, { message: `no ${name}:x` }), name);
  }
});

test('ten thousand rows', () => {
  const rows = Array.from({ length: 10_000 }, (_, index) => row({ name: `job-${index}`, state: index % 2 ? 'Failed' : 'Running' }));
  assert.equal(rows.filter(jobFilter('state:failed job-999')).length, 6); // 999, and 9991, 9993, ... 9999
});

test('the state of a filter is set, replaced and taken out', () => {
  assert.equal(toggleState('', 'Failed'), 'state:failed');
  assert.equal(toggleState('bert', 'Failed'), 'state:failed bert');
  assert.equal(toggleState('state:running bert State:PENDING', 'Failed'), 'state:failed bert');
  assert.equal(toggleState('STATE:Failed bert  kind:tf', 'Failed'), 'bert kind:tf');
  assert.equal(toggleState('state:failed', 'Failed'), '');
  assert.equal(toggleState('state:fail', 'Failed'), 'state:failed', 'a part of a state is another term');
});

test('the parts of the list', () => {
  const parts = (live) => ['now', 'history', 'all'].filter((part) => isInPart(row({ live }), part));
  assert.deepEqual(parts(true), ['now', 'all']);
  assert.deepEqual(parts(false), ['history', 'all']);
});
