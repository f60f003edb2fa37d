// @vitest-environment happy-dom
import '../shell/jupyterlab.js';
import type { INotebookTracker } from '@jupyterlab/notebook';
import { CommandRegistry } from '@lumino/commands';
import { expect, test } from 'vitest';

import { insertCell, newCellBelow } from '../../../src/lab/sidebar/cells.js';
import { FakeDet } from '../shell/fake.js';

const CONFIGURATION = 'entrypoint: MyTrial\nresources: {slots_per_trial: 1}\n';

function det(): FakeDet {
  const made = new FakeDet();
  made.settings.values.newCell = CONFIGURATION;
  return made;
}

/** A notebook in which cells are inserted below the last of these. */
function notebook(...sources: string[]) {
  const cells = sources.map(source => ({
    model: { type: 'code', sharedModel: { getSource: () => source } }
  }));
  const inserted: string[] = [];
  const sharedModel = {
    cells: cells.map(({ model }) => model.sharedModel),
    insertCells: (_: number, made: { source: string }[]) => {
      inserted.push(...made.map(({ source }) => source));
    }
  };
  const content = {
    activeCellIndex: cells.length - 1,
    activeCell: cells.at(-1),
    widgets: cells,
    model: { sharedModel }
  };
  const panel = { content, context: { ready: Promise.resolve() }, activate: () => undefined };
  const tracker = { currentWidget: panel } as unknown as INotebookTracker;
  return { tracker, inserted };
}

test('a first experiment and a template are about the class above, as the server reads it', async () => {
  const own = det();
  const written = 'entrypoint: A\nhyperparameters: {lr: 0.001}\n';
  own.post.mockResolvedValue({ configuration: written });
  const sources = ['%load_ext det_jupyter', 'class A(PyTorchTrial): ...'];
  const { tracker, inserted } = notebook(...sources);
  const commands = new CommandRegistry();
  await insertCell(newCellBelow(own.asDet), tracker, commands);
  const asked = { configuration: CONFIGURATION, entrypoint: 'A', sources };
  expect(own.post).toHaveBeenLastCalledWith('cell', asked);
  const config = { resources: { slots_per_trial: 2 } };
  await insertCell(newCellBelow(own.asDet, { name: 'team', config }), tracker, commands);
  expect(own.post).toHaveBeenLastCalledWith('cell', { ...asked, given: config });
  expect(inserted).toEqual([
    `%%det_experiment\n${written.trimEnd()}`,
    `%%det_experiment --template team\n${written.trimEnd()}`
  ]);
});

test('without a class above, or without a server, the cell is as the settings have it', async () => {
  const own = det();
  own.post.mockRejectedValue(new Error('no server'));
  const text = CONFIGURATION.trimEnd();
  expect(await newCellBelow(own.asDet)(['x = 1'])).toBe(`%%det_experiment\n${text}`);
  expect(own.post).not.toHaveBeenCalled();
  const template = { name: 'team', config: {} };
  expect(await newCellBelow(own.asDet, template)([])).toBe(
    `%%det_experiment --template team\n${text}`
  );
});
