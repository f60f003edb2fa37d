// @vitest-environment happy-dom
import './jupyterlab.js';
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { InputDialog, Notification, showDialog } from '@jupyterlab/apputils';
import { CommandRegistry } from '@lumino/commands';
import type { ReadonlyJSONObject } from '@lumino/coreutils';
import { beforeEach, expect, test, vi } from 'vitest';

import { CHANGES } from '../../../src/lab/shell/changes.js';
import { commandsPlugin, SHOW_HERE } from '../../../src/lab/shell/experimentcommands.js';
import { Commands } from '../../../src/lab/tokens.js';
import { FakeDet, line } from './fake.js';

interface IElement {
  hasAttribute: () => boolean;
  getAttribute: () => string;
  closest: () => null;
}

/** An application in which an experiment is under the context menu, and another in front. */
function start({ under, front }: { under?: number; front?: number } = {}) {
  const element = (id: number): IElement => ({
    hasAttribute: () => true,
    getAttribute: () => String(id),
    closest: () => null
  });
  const commands = new CommandRegistry();
  const page = front === undefined ? undefined : { closest: () => element(front) };
  const app = {
    commands,
    contextMenuHitTest: () => (under === undefined ? undefined : element(under)),
    shell: { currentWidget: page && { node: page } }
  } as unknown as JupyterFrontEnd;
  const det = new FakeDet();
  void commandsPlugin.activate(app, det.asDet, null);
  return { commands, det };
}

const press = (accept: boolean): void => {
  vi.mocked(showDialog).mockResolvedValue({ button: { accept } } as never);
};
const change = (experiment_id: number, verb: string): ReadonlyJSONObject => ({
  experiment_id,
  verb
});

beforeEach(() => {
  vi.clearAllMocks();
});

test('a change is asked of the master', async () => {
  const { commands, det } = start();
  det.experiments.setWhole(line(3));
  expect(await commands.execute(Commands.command, change(3, 'pause'))).toBe(true);
  expect(det.post).toHaveBeenCalledWith('api/experiments/3/pause');
});

test('a change that the master refuses is said', async () => {
  const { commands, det } = start();
  det.experiments.setWhole(line(3));
  det.post.mockRejectedValue(new Error('Experiment 3 is stopping.'));
  expect(await commands.execute(Commands.command, change(3, 'pause'))).toBe(false);
  expect(Notification.error).toHaveBeenCalledWith('Experiment 3 is stopping.');
});

test('a kill is confirmed, unless the settings say otherwise', async () => {
  const { commands, det } = start();
  det.experiments.setWhole(line(3));
  press(false);
  expect(await commands.execute(Commands.command, change(3, 'kill'))).toBe(false);
  expect(det.post).not.toHaveBeenCalled();
  press(true);
  expect(await commands.execute(Commands.command, change(3, 'kill'))).toBe(true);
  expect(det.post).toHaveBeenCalledWith('api/experiments/3/kill');
  await det.settings.set('confirmKill', false);
  await commands.execute(Commands.command, change(3, 'kill'));
  expect(showDialog).toHaveBeenCalledTimes(2);
});

test('a deletion is always confirmed', async () => {
  const { commands, det } = start();
  det.experiments.setWhole(line(3, { status: 'completed' }));
  await det.settings.set('confirmKill', false);
  press(false);
  await commands.execute(Commands.command, change(3, 'delete'));
  expect(det.post).not.toHaveBeenCalled();
});

test.each([
  ['running', false, ['pause', 'cancel', 'kill']],
  ['completed', false, ['archive', 'delete']],
  ['completed', true, ['unarchive', 'delete']],
  ['stopping', false, ['kill']]
] as const)(
  'of an experiment that is %s (archived: %s), %j are possible',
  (status, is_archived, possible) => {
    const { commands, det } = start();
    const row = line(3, { status, is_archived });
    const isOver = status === 'completed';
    const actions = row.actions.map(action => ({
      ...action,
      enabled:
        !isOver && (action.verb === 'kill' || (action.verb === 'pause' && status === 'running'))
    }));
    det.experiments.setWhole({ ...row, actions });
    const found = CHANGES.filter(verb => commands.isEnabled(Commands.command, change(3, verb)));
    expect(found).toEqual(possible);
  }
);

test.each([
  ['running', false, 'Continue (it has not ended)'],
  ['completed', false, 'Continue (it has completed; fork it)'],
  ['canceled', true, 'Continue (it is archived)'],
  ['canceled', false, 'Continue']
] as const)('of one that is %s (archived: %s), the menu says %j', (status, is_archived, label) => {
  const { commands, det } = start();
  det.experiments.setWhole(line(3, { status, is_archived }));
  const args = { experiment_id: 3 };
  expect(commands.label(Commands.continueExperiment, args)).toBe(label);
  expect(commands.isEnabled(Commands.continueExperiment, args)).toBe(label === 'Continue');
});

test('nothing can be changed without the right, without a master, or of what is unknown', () => {
  const { commands, det } = start();
  det.experiments.setWhole(line(3));
  expect(commands.isEnabled(Commands.command, change(4, 'pause'))).toBe(false);
  expect(commands.isEnabled(Commands.command, change(3, 'explode'))).toBe(false);
  det.setLink({ mayWrite: false });
  expect(commands.isEnabled(Commands.command, change(3, 'pause'))).toBe(false);
  det.setLink({ mayWrite: true, state: 'cut' });
  expect(commands.isEnabled(Commands.command, change(3, 'pause'))).toBe(false);
});

test('the context menu is about the experiment below it, the palette about the page in front', async () => {
  const { commands, det } = start({ under: 3, front: 4 });
  det.experiments.setWhole(line(3), line(4));
  await commands.execute(Commands.command, { where: 'menu', verb: 'pause' });
  await commands.execute(Commands.command, { where: 'page', verb: 'pause' });
  expect(det.post.mock.calls).toEqual([['api/experiments/3/pause'], ['api/experiments/4/pause']]);
  expect(commands.isVisible(Commands.command, { where: 'menu', verb: 'archive' })).toBe(false);
});

test('without an experiment in front, the palette can change none', async () => {
  const { commands, det } = start();
  det.experiments.setWhole(line(3));
  expect(commands.isEnabled(Commands.command, { where: 'page', verb: 'kill' })).toBe(false);
  expect(await commands.execute(Commands.command, { where: 'page', verb: 'kill' })).toBe(false);
});

test('labels that are given replace those that there are', async () => {
  const { commands, det } = start();
  det.experiments.setWhole(line(3, { labels: ['old', 'kept'] }));
  await commands.execute(Commands.labelExperiment, { experiment_id: 3, labels: ['kept', 'new'] });
  expect(det.post).toHaveBeenCalledWith('api/experiments/3/details', {
    add_labels: ['new'],
    remove_labels: ['old']
  });
});

test('labels are asked for', async () => {
  const { commands, det } = start({ under: 3 });
  det.experiments.setWhole(line(3, { labels: ['old'] }));
  const answer = { button: { accept: true }, value: ' a, b b ,, a' };
  vi.mocked(InputDialog.getText).mockResolvedValue(answer as never);
  await commands.execute(Commands.labelExperiment, { where: 'menu' });
  expect(det.post).toHaveBeenCalledWith('api/experiments/3/details', {
    add_labels: ['a', 'b b'],
    remove_labels: ['old']
  });
  vi.mocked(InputDialog.getText).mockResolvedValue({ button: { accept: false } } as never);
  expect(await commands.execute(Commands.labelExperiment, { where: 'menu' })).toBe(false);
});

test('entries that open a page are there when the page is', async () => {
  const { commands } = start({ under: 3 });
  const args = { where: 'menu', what: 'logs' };
  expect(commands.isVisible(SHOW_HERE, args)).toBe(false);
  const execute = vi.fn();
  commands.addCommand(Commands.openLogs, { execute });
  expect(commands.isVisible(SHOW_HERE, args)).toBe(true);
  await commands.execute(SHOW_HERE, args);
  expect(execute).toHaveBeenCalledWith(expect.objectContaining({ experiment_id: 3 }));
});

test('the master can be started where it was stopped', async () => {
  const { commands, det } = start();
  expect(commands.isEnabled(Commands.startMaster)).toBe(false);
  det.setLink({ state: 'no-master' });
  expect(commands.isEnabled(Commands.startMaster)).toBe(true);
  await commands.execute(Commands.startMaster);
  expect(det.post).toHaveBeenCalledWith('master/start');
  expect(det.retry).toHaveBeenCalledOnce();
});

test('every command says what it takes, and has a label, a caption and an icon', async () => {
  const { commands } = start();
  for (const id of commands.listCommands()) {
    expect(await commands.describedBy(id), id).toMatchObject({ args: { type: 'object' } });
    const args = { verb: 'pause' };
    expect(commands.label(id, args), id).not.toBe('');
    expect(commands.caption(id, args), id).not.toBe('');
    expect(commands.icon(id, args), id).toBeTruthy();
  }
});
