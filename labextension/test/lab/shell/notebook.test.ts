// @vitest-environment happy-dom
import './jupyterlab.js';
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import type { NotebookPanel } from '@jupyterlab/notebook';
import { CommandRegistry } from '@lumino/commands';
import { Signal } from '@lumino/signaling';
import { beforeEach, expect, test, vi } from 'vitest';

import { CellRunner, notebookButtonPlugin } from '../../../src/lab/shell/notebookbutton.js';
import { Commands } from '../../../src/lab/tokens.js';
import { FakeDet } from './fake.js';

class FakeKernel {
  readonly id = 'k1';
  readonly statusChanged = new Signal<this, string>(this);
  readonly ran: string[] = [];
  status: 'ok' | 'error' = 'ok';

  requestExecute({ code }: { code: string }) {
    this.ran.push(code);
    return { done: Promise.resolve({ content: { status: this.status } }) };
  }
}

/** A notebook of these cells, the first of them active. */
function notebook(...sources: [string, ...string[]]) {
  const cells = sources.map(source => {
    const shared = {
      source,
      getSource: () => shared.source,
      setSource: (text: string) => {
        shared.source = text;
      }
    };
    return { model: { type: 'code', sharedModel: shared } };
  });
  const insertCell = vi.fn((index: number, { source }: { source: string }) => {
    cells.splice(index, 0, { model: { type: 'code', sharedModel: { source } as never } });
  });
  const content = {
    activeCellIndex: 0,
    activeCell: cells[0],
    widgets: cells,
    mode: 'command',
    deselectAll: vi.fn(),
    model: { sharedModel: { insertCell }, getMetadata: () => ({ name: 'python' }) }
  };
  const kernel = new FakeKernel();
  /** Add a cell, which is the active one. */
  const choose = (index: number, source: string): void => {
    insertCell(index, { source });
    content.activeCellIndex = index;
    content.activeCell = cells[index];
    const shared = cells[index]?.model.sharedModel as unknown as Record<string, unknown>;
    shared.getSource = () => shared.source;
    shared.setSource = (text: string) => {
      shared.source = text;
    };
  };
  const panel = { content, sessionContext: { session: { kernel } } };
  const texts = (): string[] => cells.map(cell => cell.model.sharedModel.source);
  return { panel: panel as unknown as NotebookPanel, content, kernel, texts, choose };
}

const execute = vi.fn();
const answer = vi.fn();
function runner(): CellRunner {
  const det = new FakeDet();
  det.settings.values.newCell = 'entrypoint: MyTrial\ndata: {}\n';
  det.post.mockImplementation(answer);
  return new CellRunner({ commands: { execute } as unknown as CommandRegistry }, det.asDet);
}
beforeEach(() => {
  vi.clearAllMocks();
  answer.mockRejectedValue(new Error('no server')); // then the settings' text counts
});

test('a class gets what the server reads in the cells; an empty cell is about that above', async () => {
  answer.mockResolvedValue({ configuration: 'entrypoint: A\nsearcher: {metric: val_loss}\n' });
  const source = 'class A(PyTorchTrial): ...';
  const written = '%%det_experiment\nentrypoint: A\nsearcher: {metric: val_loss}';
  const one = notebook(source, 'print(1)');
  await runner().run(one.panel);
  expect(one.texts()).toEqual([source, written, 'print(1)']);
  const asked = { configuration: 'entrypoint: MyTrial\ndata: {}\n', entrypoint: 'A' };
  expect(answer).toHaveBeenLastCalledWith('cell', { ...asked, sources: [source] });
  const other = notebook('', source, 'def helper(): ...');
  other.choose(3, '');
  await runner().run(other.panel);
  expect(other.texts()).toEqual(['', source, 'def helper(): ...', written]);
  expect(answer).toHaveBeenLastCalledWith('cell', {
    ...asked,
    sources: ['', source, 'def helper(): ...', '']
  });
});

test('an experiment is run, after the extension is loaded', async () => {
  const { panel, kernel, texts } = notebook('%%det_experiment\nentrypoint: A');
  await runner().run(panel);
  expect(kernel.ran).toEqual(["get_ipython().extension_manager.load_extension('det_jupyter')"]);
  expect(execute.mock.calls).toEqual([['notebook:run-cell']]);
  expect(texts()).toEqual(['%%det_experiment\nentrypoint: A']);
});

test('the extension is loaded once in a kernel, and again after a restart', async () => {
  const { panel, kernel } = notebook('%%det_experiment\nentrypoint: A');
  const cells = runner();
  await cells.run(panel);
  await cells.run(panel);
  expect(kernel.ran).toHaveLength(1);
  kernel.statusChanged.emit('restarting');
  await cells.run(panel);
  expect(kernel.ran).toHaveLength(2);
});

test('a kernel without det_jupyter is said, and tried again', async () => {
  const { panel, kernel } = notebook('%%det_experiment\nentrypoint: A');
  const cells = runner();
  kernel.status = 'error';
  await cells.run(panel);
  await vi.waitFor(() => expect(Notification.error).toHaveBeenCalledOnce());
  expect(vi.mocked(Notification.error).mock.calls[0]?.[0]).toContain('%pip install det-jupyter');
  await cells.run(panel);
  expect(kernel.ran).toHaveLength(2);
});

test('a configuration gets the magic line and is run', async () => {
  const { panel, texts } = notebook('entrypoint: A\nsearcher: {name: single}');
  await runner().run(panel);
  expect(texts()).toEqual(['%%det_experiment\nentrypoint: A\nsearcher: {name: single}']);
  expect(execute).toHaveBeenCalledWith('notebook:run-cell');
});

test('an empty cell gets the configuration of the settings, and is not run', async () => {
  const { panel, content, texts } = notebook('');
  await runner().run(panel);
  expect(texts()).toEqual(['%%det_experiment\nentrypoint: MyTrial\ndata: {}']);
  expect(content.mode).toBe('edit');
  expect(execute).not.toHaveBeenCalled();
});

test('a cell that defines a trial gets an experiment below it, once', async () => {
  const { panel, content, texts } = notebook('class A(PyTorchTrial): ...', 'print(1)');
  const cells = runner();
  await cells.run(panel);
  const below = '%%det_experiment\nentrypoint: A\ndata: {}';
  expect(texts()).toEqual(['class A(PyTorchTrial): ...', below, 'print(1)']);
  expect(content.activeCellIndex).toBe(1);
  expect(execute).not.toHaveBeenCalled();
});

test('an experiment that stands below already is chosen', async () => {
  const below = '%%det_experiment\nentrypoint: A\nmax_restarts: 0';
  const { panel, content, texts } = notebook('class A(PyTorchTrial): ...', below);
  await runner().run(panel);
  expect(texts()).toHaveLength(2);
  expect(content.activeCellIndex).toBe(1);
});

test('the button is for Python, and hidden by its setting; the menu entry stays', async () => {
  const commands = new CommandRegistry();
  const det = new FakeDet();
  const python = notebook('');
  const other = notebook('');
  other.content.model.getMetadata = () => ({ name: 'R' });
  const tracker = {
    currentWidget: python.panel as NotebookPanel | null,
    currentChanged: new Signal({})
  };
  void notebookButtonPlugin.activate(
    { commands } as unknown as JupyterFrontEnd,
    det.asDet,
    tracker
  );
  expect(commands.isEnabled(Commands.runCell)).toBe(true);
  expect(commands.isVisible(Commands.runCell, { toolbar: true })).toBe(true);
  await det.settings.set('showNotebookButton', false);
  expect(commands.isVisible(Commands.runCell, { toolbar: true })).toBe(false);
  expect(commands.isVisible(Commands.runCell)).toBe(true);
  python.content.model.getMetadata = () => ({ name: '' });
  expect(commands.isEnabled(Commands.runCell)).toBe(true);
  tracker.currentWidget = other.panel;
  expect(commands.isEnabled(Commands.runCell)).toBe(false);
  tracker.currentWidget = null;
  expect(commands.isEnabled(Commands.runCell)).toBe(false);
});
