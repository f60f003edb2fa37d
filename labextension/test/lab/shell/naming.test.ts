// @vitest-environment happy-dom
import './jupyterlab.js';
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Clipboard, InputDialog, Notification, showDialog } from '@jupyterlab/apputils';
import { CommandRegistry } from '@lumino/commands';
import { beforeEach, expect, test, vi } from 'vitest';

import { commandsPlugin } from '../../../src/lab/shell/experimentcommands.js';
import { forkCell } from '../../../src/lab/sidebar/cells.js';
import { english } from '../../../src/model/trans.js';
import { metricsTable } from '../../../src/lab/shell/copies.js';
import { Commands } from '../../../src/lab/tokens.js';
import type { IExperimentRow } from '../../../src/model/state.js';
import { FakeDet, line } from './fake.js';
import { agent, slot } from '../../clustersamples.js';

/** Experiments 3 to 5 in a list of which some are selected, and the menu is on one's row. */
function start({ under = 3, selected = '' } = {}) {
  document.body.innerHTML = `<div ${selected && `data-det-selected="${selected}"`}>
    <p data-det-experiment="${under}"></p><p data-det-slot="box 1"></p></div>`;
  const commands = new CommandRegistry();
  const app = {
    commands,
    contextMenuHitTest: (test: (node: HTMLElement) => boolean) =>
      [...document.querySelectorAll('p')].find(test),
    shell: { currentWidget: null }
  } as unknown as JupyterFrontEnd;
  const det = new FakeDet();
  void commandsPlugin.activate(app, det.asDet, null);
  const over: Partial<IExperimentRow> = { status: 'completed', num_trials: 2, actions: [] };
  det.experiments.setWhole(line(3, over), line(4, { ...over, labels: ['a', 'b'] }), line(5));
  return { commands, det };
}

const HERE = { where: 'menu' };
const [DELETE, LABEL] = [
  { ...HERE, verb: 'delete' },
  { ...HERE, labels: ['new'] }
];
const press = (accept: boolean): void => {
  vi.mocked(showDialog).mockResolvedValue({ button: { accept } } as never);
};

beforeEach(() => vi.clearAllMocks());

test('the menu of a selected row deletes all that are selected and over, after saying what is lost', async () => {
  const { commands, det } = start({ selected: '3 4 5' });
  expect(commands.label(Commands.command, DELETE)).toBe('Delete (2)');
  press(false);
  await commands.execute(Commands.command, DELETE);
  expect(vi.mocked(showDialog).mock.calls[0]?.[0]).toMatchObject({
    title: 'Delete 2 experiments?',
    body:
      'DigitsTrial (#3), DigitsTrial (#4). The metrics, logs and checkpoints of 4 trials are ' +
      'deleted. This cannot be undone. 1 other has not ended and is kept.'
  });
  expect(det.post).not.toHaveBeenCalled();
  press(true);
  expect(await commands.execute(Commands.command, DELETE)).toBe(true);
  expect(det.post.mock.calls).toEqual([['api/experiments/3/delete'], ['api/experiments/4/delete']]);
});

test('the menu of a row that is not selected is about that row', () => {
  const { commands } = start({ under: 3, selected: '4 5' });
  expect(commands.label(Commands.command, DELETE)).toBe('Delete');
});

test('what is refused of several is said once, and the others are changed', async () => {
  const { commands, det } = start({ selected: '3 4' });
  press(true);
  det.post.mockRejectedValueOnce(new Error('it is being exported')).mockResolvedValue({});
  expect(await commands.execute(Commands.command, DELETE)).toBe(false);
  expect(det.post).toHaveBeenCalledTimes(2);
  expect(vi.mocked(Notification.error).mock.calls.map(([text]) => text)).toEqual([
    '1 of 2 experiments were not changed. #3: it is being exported'
  ]);
});

test('labels of several are those that all have; others stay', async () => {
  const { commands, det } = start({ selected: '3 4' });
  det.experiments.setSome(line(3, { labels: ['b', 'c'] }));
  const answer = { button: { accept: true }, value: 'new' };
  vi.mocked(InputDialog.getText).mockResolvedValue(answer as never);
  await commands.execute(Commands.labelExperiment, HERE);
  expect(vi.mocked(InputDialog.getText).mock.calls[0]?.[0]).toMatchObject({ text: 'b' });
  const change = { add_labels: ['new'], remove_labels: ['b'] };
  expect(det.post.mock.calls).toEqual([
    ['api/experiments/3/details', change],
    ['api/experiments/4/details', change]
  ]);
  expect(commands.isEnabled(Commands.labelExperiment, LABEL)).toBe(true);
});

test('an experiment is renamed, unless the name is empty or the same', async () => {
  const { commands, det } = start();
  for (const value of ['', ' ', 'DigitsTrial', ' wide ']) {
    const answer = { button: { accept: true }, value };
    vi.mocked(InputDialog.getText).mockResolvedValue(answer as never);
    await commands.execute(Commands.renameExperiment, HERE);
  }
  expect(det.post.mock.calls).toEqual([['api/experiments/3/details', { name: 'wide' }]]);
});

test.each([
  ['completed', false, false],
  ['error', false, true],
  ['canceled', false, true],
  ['canceled', true, false],
  ['running', false, false]
] as const)('one that is %s (archived: %s) can be continued: %s', (status, is_archived, can) => {
  const { commands, det } = start();
  det.experiments.setSome(line(3, { status, is_archived }));
  expect(commands.isEnabled(Commands.continueExperiment, HERE)).toBe(can);
});

test('what is about one experiment is not offered for several', () => {
  const { commands } = start({ selected: '3 4' });
  const ids = [
    Commands.renameExperiment,
    Commands.continueExperiment,
    Commands.forkExperiment,
    Commands.exportExperiment,
    Commands.openTensorBoard
  ];
  expect(ids.filter(id => commands.isVisible(id, HERE))).toEqual([]);
});

test('TensorBoard is opened, and the notification says where it runs, or why it does not', async () => {
  const opened = vi.spyOn(window, 'open').mockReturnValue(null);
  vi.stubGlobal('location', { hostname: 'localhost' });
  const { commands, det } = start();
  const url = 'http://localhost:6006/';
  const asked = vi.fn().mockResolvedValueOnce({ url, tunnel: 'ssh box' });
  Object.assign(det, { socket: { ask: asked } });
  expect(await commands.execute(Commands.openTensorBoard, HERE)).toBe(true);
  vi.unstubAllGlobals();
  expect(asked).toHaveBeenCalledWith(3, 'tensorboard', {});
  expect(opened).toHaveBeenCalledWith(url, '_blank', 'noopener');
  const message = vi.mocked(Notification.update).mock.calls[0]?.[0].message;
  expect(message).toContain(`TensorBoard runs at ${url}.`);
  expect(message).toContain('enter ssh box on yours');
  asked.mockRejectedValueOnce(new Error('it is not installed'));
  expect(await commands.execute(Commands.openTensorBoard, HERE)).toBe(false);
  expect(Notification.dismiss).toHaveBeenCalledTimes(1);
  expect(Notification.error).toHaveBeenCalledWith('it is not installed');
});

test('numbers are copied as cells take them', async () => {
  const { commands } = start({ selected: '3 4' });
  await commands.execute(Commands.copyExperimentId, HERE);
  expect(Clipboard.copyToSystem).toHaveBeenCalledWith('3 4');
});

test.each([
  ['free', ['Disable Slot']],
  ['used', ['Disable Slot', 'Disable Slot When Its Trial Ends']],
  ['disabled', ['Enable Slot']]
] as const)('the menu of a slot that is %s has %j', async (state, labels) => {
  const { commands, det } = start();
  const counts = { summary: '', num_running: 0, num_waiting: 0, num_slots: 1, num_slots_used: 0 };
  const agents = [agent('box', [slot(1, { state })])];
  det.cluster.set({ agents, more_lost: '', disks: [], ...counts });
  const all = [{ enabled: false }, { enabled: false, drain: true }, { enabled: true }];
  const offered = all.filter(args => commands.isVisible(Commands.switchSlot, { ...HERE, ...args }));
  expect(offered.map(args => commands.label(Commands.switchSlot, { ...HERE, ...args }))).toEqual(
    labels
  );
  await commands.execute(Commands.switchSlot, { ...HERE, ...offered.at(-1) });
  expect(det.post.mock.calls).toEqual([
    ['api/agents/box/slots', { slots: [1], drain: false, ...offered.at(-1) }]
  ]);
});

test('a fork is a cell whose name is valid YAML, whatever it is', () => {
  const cell = forkCell({ id: 7, name: 'a: "b"' }, english);
  expect(cell.split('\n').slice(0, 2)).toEqual(['%%det_experiment fork 7', 'name: "a: \\"b\\""']);
});

test('metrics are exported with the columns of the command line', () => {
  const curve = { trial_id: 7, group: 'validation', name: 'a, b', times: [1.5, 2.5] };
  const long = { ...curve, steps: [10, 20], values: [0.5, null], steps_per_epoch: 10 };
  expect(metricsTable([long], text => (text.includes(',') ? `"${text}"` : text))).toBe(
    'trial,group,steps,epoch,time,metric,value\r\n' +
      '7,validation,10,1,1.5,"a, b",0.5\r\n7,validation,20,2,2.5,"a, b",\r\n'
  );
});
