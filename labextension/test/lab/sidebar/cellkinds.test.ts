import { readFileSync } from 'node:fs';

import { expect, test } from 'vitest';

import {
  classify,
  findEntrypoint,
  isExperimentOf,
  KEYS,
  newCellSource
} from '../../../src/lab/sidebar/cellkinds.js';

const CONFIGURATION = `entrypoint: DigitsTrial
# how long
hyperparameters: {global_batch_size: 64}
searcher:
  name: single
  metric: accuracy
  max_length: {
    epochs: 6
}
`;

test.each([
  ['%%det_experiment\nentrypoint: A', 'experiment'],
  ['\n%%det_experiment --var run\nentrypoint: A', 'experiment'],
  ['%%det_experimental\nx', 'code'],
  ['', 'empty'],
  ['  \n\n', 'empty'],
  [CONFIGURATION, 'configuration'],
  ['name: str = "a"\nsearch(name)', 'code'],
  ['name: digits', 'code'],
  ['entrypoint: A\nprint(1)', 'code'],
  ['%%time\nclass A(PyTorchTrial): ...', 'code'],
  ['print("hello")', 'code']
])('%j is of kind %s', (source, kind) => {
  expect(classify(source).kind).toBe(kind);
});

test('the configuration may have every key that the schema has', () => {
  const schema = JSON.parse(readFileSync('../docs/configuration.schema.json', 'utf8')) as {
    properties: object;
  };
  expect(Object.keys(schema.properties).filter(key => !KEYS.has(key))).toEqual([]);
});

test.each([
  ['class Net(nn.Module):\n  pass\n\nclass DigitsTrial(PyTorchTrial):\n  pass\n', 'DigitsTrial'],
  ['class A(PyTorchTrial): ...\nclass B(\n    PyTorchTrial,\n): ...', 'B'],
  ['def helper(x):\n  return x\n\ndef train():\n  pass\n', 'train'],
  ['def train(epochs=3, *rest):\n  pass\n', 'train'],
  ['def first():\n  pass\n\nclass Net(nn.Module): ...', 'first'],
  ['class Net(nn.Module): ...', 'Net'],
  ['class A:\n  def method():\n    pass', 'A'],
  ['x = 1', null]
])('the entrypoint of %j is %s', (source, name) => {
  expect(findEntrypoint(source)).toBe(name);
});

test('a new cell has the magic line once, and names the entrypoint', () => {
  expect(newCellSource('entrypoint: MyTrial\ndata: {}\n', 'A')).toBe(
    '%%det_experiment\nentrypoint: A\ndata: {}'
  );
  expect(newCellSource('%%det_experiment --preview\ndata: {}', 'A')).toBe(
    '%%det_experiment\nentrypoint: A\ndata: {}'
  );
  expect(newCellSource('', null)).toBe('%%det_experiment\n');
});

test('a cell is an experiment of what it names', () => {
  expect(isExperimentOf('%%det_experiment\nentrypoint: "A"  # mine', 'A')).toBe(true);
  expect(isExperimentOf('%%det_experiment\nentrypoint: AB', 'A')).toBe(false);
  expect(isExperimentOf('entrypoint: A\nsearcher: {}', 'A')).toBe(false);
});
