// @vitest-environment happy-dom
import './jupyterlab.js';
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Notification, showDialog } from '@jupyterlab/apputils';
import type { IRunningSessions } from '@jupyterlab/running';
import { CommandRegistry } from '@lumino/commands';
import { Signal } from '@lumino/signaling';
import { Title, Widget } from '@lumino/widgets';
import { beforeEach, expect, test, vi } from 'vitest';

import { KILL_TRIAL, SHOW_RUNNING } from '../../../src/lab/running/runningcommands.js';
import { runningPlugins } from '../../../src/lab/running/plugins.js';
import { Commands } from '../../../src/lab/tokens.js';
import { FakeDet, trial } from './fake.js';

class FakeConsole extends Widget {
  readonly kernel = { status: 'idle' };
  readonly sessionContext = {
    session: { kernel: this.kernel },
    statusChanged: new Signal<object, string>({})
  };
}

/** An application; `under` is the context of the item with the context menu. */
function start({ under = '', hasConsoles = true, isLab = true, restored = [] as object[] } = {}) {
  const det = new FakeDet();
  const commands = new CommandRegistry();
  const consoles: FakeConsole[] = [];
  const created = vi.fn(() => {
    consoles.push(new FakeConsole());
    return consoles.at(-1);
  });
  if (hasConsoles) {
    commands.addCommand('console:create', { execute: created as never });
  }
  const opened = vi.fn();
  commands.addCommand(Commands.openExperiment, { execute: args => opened('page', args) as never });
  commands.addCommand(Commands.openLogs, { execute: args => opened('logs', args) as never });
  const startNew = vi.fn().mockResolvedValue({ id: 'kernel-1', dispose: vi.fn() });
  const shell = { add: vi.fn(), activateById: vi.fn(), widgets: () => restored };
  const node = { dataset: { context: under } };
  const app = {
    commands,
    shell,
    restored: Promise.resolve(),
    serviceManager: { kernels: { startNew } },
    contextMenuHitTest: (fits: (element: object) => boolean) => (fits(node) ? node : undefined)
  } as unknown as JupyterFrontEnd;
  const sections: IRunningSessions.IManager[] = [];
  const managers = { add: (one: IRunningSessions.IManager) => sections.push(one) };
  const [ranks, running] = runningPlugins;
  const labShell = { layoutModified: new Signal<object, void>({}) };
  void ranks?.activate(app, det.asDet, isLab ? labShell : null);
  void running?.activate(app, det.asDet, managers);
  return { det, commands, consoles, created, opened, startNew, shell, sections, app };
}

const CONSOLE = { trial_id: 3, rank: 1 };

beforeEach(() => {
  vi.clearAllMocks();
});

test('consoles that came back with the layout restart without a question, if they are of ranks', async () => {
  const consoleOf = (name: string) => ({
    title: new Title({ owner: {} }),
    sessionContext: {
      session: { kernel: { name } },
      kernelPreference: { name } as object,
      kernelChanged: new Signal<object, void>({})
    }
  });
  const [rank, other] = [consoleOf('det-trial-3-rank-1'), consoleOf('python3')];
  start({ restored: [rank, other, {}] });
  await Promise.resolve();
  expect(rank.sessionContext.kernelPreference).toMatchObject({ skipKernelRestartDialog: true });
  expect(other.sessionContext.kernelPreference).toEqual({ name: 'python3' });
});

test('a console attaches by the name of the rank; to close it is to detach', async () => {
  const { commands, created, startNew } = start();
  await commands.execute(Commands.openConsole, CONSOLE);
  expect(startNew).toHaveBeenCalledWith({ name: 'det-trial-3-rank-1' });
  expect(created).toHaveBeenCalledWith(
    expect.objectContaining({
      name: 'Trial 3, rank 1',
      kernelPreference: { id: 'kernel-1', shutdownOnDispose: true, skipKernelRestartDialog: true }
    })
  );
});

test('the console that is open is shown, and another one when its rank has ended', async () => {
  const { commands, consoles, created, shell } = start();
  await commands.execute(Commands.openConsole, CONSOLE);
  await commands.execute(Commands.openConsole, CONSOLE);
  expect(created).toHaveBeenCalledTimes(1);
  expect(shell.activateById).toHaveBeenCalledWith(consoles[0]?.id);
  (consoles[0] as FakeConsole).kernel.status = 'dead';
  await commands.execute(Commands.openConsole, CONSOLE);
  expect(created).toHaveBeenCalledTimes(2);
});

test('why there is no console is said', async () => {
  const { commands, startNew } = start();
  startNew.mockRejectedValue(new Error('rank 1 of trial 3 does not run now: it is paused'));
  expect(await commands.execute(Commands.openConsole, CONSOLE)).toBeNull();
  expect(Notification.error).toHaveBeenCalledWith(
    expect.stringContaining('it is paused'),
    expect.anything()
  );
});

test.each([
  ['COMPLETED', 'completed'],
  ['STOPPING_KILLED', 'stopping'],
  ['ACTIVE', 'running'] // it starts again
])('why a console has died is said: the trial is %s', async (state, word) => {
  const { commands, consoles, det } = start();
  await commands.execute(Commands.openConsole, CONSOLE);
  det.get.mockResolvedValue({ state });
  consoles[0]?.sessionContext.statusChanged.emit('dead');
  await vi.waitFor(() => expect(Notification.emit).toHaveBeenCalled());
  expect(Notification.emit).toHaveBeenCalledWith(
    `Rank 1 of trial 3 has ended, and with it its console: the trial is ${word}.`,
    'info',
    expect.anything()
  );
});

test('in Notebook 7 stacks are in a dialog, and the console is not detached with its widget', async () => {
  const { commands, created, det, shell } = start({ isLab: false });
  det.ask.mockResolvedValue({ trial_id: 3, stacks: [] });
  await commands.execute(Commands.showStacks, { trial_id: 3 });
  expect(showDialog).toHaveBeenCalledTimes(1);
  expect(shell.add).not.toHaveBeenCalled();
  await commands.execute(Commands.openConsole, CONSOLE);
  expect(created).toHaveBeenCalledWith(
    expect.objectContaining({
      kernelPreference: expect.objectContaining({
        id: 'kernel-1',
        shutdownOnDispose: false
      }) as object
    })
  );
});

test('where there are no consoles there is no command for one', () => {
  const { commands } = start({ hasConsoles: false });
  expect(commands.isVisible(Commands.openConsole, CONSOLE)).toBe(false);
  expect(commands.isEnabled(Commands.openConsole, CONSOLE)).toBe(false);
});

test('the context menu finds trial and rank', async () => {
  const { commands, opened } = start({ under: 'det-trial-3-rank-1' });
  const args = { where: 'menu', what: 'logs' };
  expect(commands.isEnabled(Commands.openConsole, args)).toBe(true);
  await commands.execute(SHOW_RUNNING, args);
  expect(opened).toHaveBeenCalledWith('logs', { experiment_id: 11, trial_id: 3, rank: 1 });
  const trialMenu = start({ under: 'det-trial-3' }).commands;
  expect(trialMenu.isEnabled(Commands.openConsole, args)).toBe(false);
  expect(trialMenu.isEnabled(Commands.showStacks, args)).toBe(true);
});

test('elsewhere, and for other arguments, nothing is meant', async () => {
  const { commands, startNew, det } = start({ under: 'kernel-3' });
  for (const args of [{}, { where: 'menu' }, { trial_id: '3' }]) {
    expect(commands.isEnabled(Commands.showStacks, args)).toBe(false);
    expect(await commands.execute(Commands.openConsole, args)).toBeNull();
    expect(await commands.execute(KILL_TRIAL, args)).toBe(false);
  }
  expect(startNew).not.toHaveBeenCalled();
  expect(det.post).not.toHaveBeenCalled();
});

test('stacks of one trial have one tab', async () => {
  const { commands, det, shell } = start();
  det.ask.mockResolvedValue({ trial_id: 3, stacks: [] });
  const one = (await commands.execute(Commands.showStacks, { trial_id: 3 })) as Widget;
  expect(await commands.execute(Commands.showStacks, { trial_id: 3, rank: 1 })).toBe(one);
  expect(shell.add).toHaveBeenCalledTimes(1);
  one.dispose();
  expect(await commands.execute(Commands.showStacks, { trial_id: 3 })).not.toBe(one);
});

test('the section opens pages and logs, and kills after a question', async () => {
  const { det, opened, sections } = start();
  const [section] = sections;
  section?.running({ mode: 'tree' });
  det.say(trial(3));
  const [item] = section?.running({ mode: 'tree' }) ?? [];
  item?.open?.();
  expect(opened).toHaveBeenCalledWith('page', { experiment_id: 13, trial_id: 3 });
  item?.children?.[1]?.open?.();
  expect(opened).toHaveBeenCalledWith('logs', { experiment_id: 13, trial_id: 3, rank: 1 });
  vi.mocked(showDialog).mockResolvedValue({ button: { accept: true } } as never);
  item?.shutdown?.();
  await vi.waitFor(() => expect(det.post).toHaveBeenCalledWith('api/trials/3/kill'));
});

test('without a Running panel there is no section, and no error', () => {
  const { app, det } = start();
  expect(() => runningPlugins[1]?.activate(app, det.asDet, null)).not.toThrow();
});

test('every command says what it takes', () => {
  const { commands } = start();
  for (const id of [Commands.showStacks, Commands.openConsole, KILL_TRIAL, SHOW_RUNNING]) {
    expect(commands.label(id, {})).toMatch(/\S/);
  }
});
