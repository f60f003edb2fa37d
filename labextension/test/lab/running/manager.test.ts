// @vitest-environment happy-dom
import './jupyterlab.js';
import { showDialog } from '@jupyterlab/apputils';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import { killAll, killTrial } from '../../../src/lab/running/killing.js';
import { RunningTrials } from '../../../src/lab/running/manager.js';
import { FakeDet, rank, trial } from './fake.js';

function start() {
  const det = new FakeDet();
  const actions = { openTrial: vi.fn(), openRank: vi.fn(), kill: vi.fn() };
  const seen = { is: true };
  const killed = vi.fn();
  const manager = new RunningTrials({
    det: det.asDet,
    actions,
    killAll: killed,
    isSeen: () => seen.is
  });
  const changed = vi.fn();
  manager.runningChanged.connect(changed);
  return { det, actions, seen, killed, manager, changed };
}

beforeEach(() => {
  vi.clearAllMocks();
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
});

test('trials have their ranks as children, with state, steps and slot', () => {
  const { det, manager } = start();
  manager.running({ mode: 'tree' });
  det.say(trial(3, { ranks: [rank(0), rank(1, { status: 'starting', device: '' })] }));
  const [item] = manager.running({ mode: 'tree' });
  expect(item?.label()).toBe('3: digits');
  expect(item?.detail?.()).toBe('1,200 steps');
  expect(item?.labelTitle?.()).toContain('Running, 1,200 steps, 25%');
  expect(item?.icon()).toMatchObject({ name: 'det-jupyter:status-running' });
  expect(item?.context).toBe('det-trial-3');
  expect(item?.children?.map(child => [child.label(), child.detail?.()])).toEqual([
    ['Rank 0', 'GPU 0'],
    ['Rank 1', 'Starting, GPU 1']
  ]);
  expect(item?.children?.[1]?.context).toBe('det-trial-3-rank-1');
  expect(item?.children?.[1]?.shutdown).toBeUndefined();
});

test('a trial that does not run says what it does', () => {
  const { det, manager } = start();
  manager.running();
  det.say(trial(3, { status: 'pausing', status_word: 'Pausing' }));
  expect(manager.running()[0]?.detail?.()).toBe('Pausing');
});

test('a trial that diverges looks like a failure, and says what it is', () => {
  const { det, manager } = start();
  manager.running();
  const alarm = 'loss is NaN since batch 40';
  det.say(trial(3, { status_word: 'Running, diverged', alarm, alarm_kind: 'diverged' }));
  const [item] = manager.running();
  expect(item?.className).toContain('jp-mod-error');
  expect(item?.detail?.()).toBe('diverged'); // leaves room for the name
  expect(item?.labelTitle?.()).toContain(`Running, diverged, 1,200 steps, 25%\n${alarm}`);
});

test('a trial that waits for room on a disk says so', () => {
  const { det, manager } = start();
  manager.running();
  const alarm = 'waits for room on /data and goes on when there is some';
  const word = 'Running, waits for room';
  det.say(trial(3, { status_word: word, alarm, alarm_kind: 'waits for room' }));
  expect(manager.running()[0]?.detail?.()).toBe('waits for room');
});

test('as a list, ranks follow their trial and say whose they are', () => {
  const { det, manager } = start();
  manager.running({ mode: 'list' });
  det.say(trial(3), trial(4, { ranks: [] }));
  const items = manager.running({ mode: 'list' });
  expect(items.map(item => item.label())).toEqual([
    '3: digits',
    'Trial 3, rank 0',
    'Trial 3, rank 1',
    '4: digits'
  ]);
  expect(items.some(item => item.children)).toBe(false);
});

test('icons are the same objects, so that drawing anew does not flicker', () => {
  const { det, manager } = start();
  manager.running();
  det.say(trial(3));
  expect(manager.running()[0]?.icon()).toBe(manager.running()[0]?.icon());
});

test('nothing is followed before somebody looks, nor when nobody does any more', () => {
  const { det, manager, seen } = start();
  expect(det.followers.size).toBe(0);
  manager.running();
  expect(det.followers.size).toBe(1);
  vi.advanceTimersByTime(30_000);
  expect(det.followers.size).toBe(1);
  seen.is = false;
  vi.advanceTimersByTime(7000);
  expect(det.followers.size).toBe(0);
  manager.running();
  expect(det.followers.size).toBe(1);
});

test('it is drawn anew only when something changed, and at most twice a second', () => {
  const { det, manager, changed } = start();
  manager.running();
  det.say(trial(3));
  det.say(trial(3, { steps_completed: 1201 }));
  expect(changed).not.toHaveBeenCalled();
  vi.advanceTimersByTime(500);
  expect(changed).toHaveBeenCalledTimes(1);
  det.say(trial(3, { steps_completed: 1201 }));
  vi.advanceTimersByTime(5000);
  expect(changed).toHaveBeenCalledTimes(1);
});

test('what is shown stays while the connection is cut, and goes with the master', () => {
  const { det, manager } = start();
  manager.running();
  det.say(trial(3));
  det.setLink({ state: 'cut' });
  expect(manager.running()).toHaveLength(1);
  det.setLink({ state: 'no-master' });
  expect(manager.running()).toHaveLength(0);
});

test('who may not change anything has nothing to press', () => {
  const { det, manager } = start();
  det.setLink({ mayWrite: false });
  manager.running();
  det.say(trial(3));
  expect(manager.running()[0]?.shutdown).toBeUndefined();
});

test('clicks open the page and the logs; X kills', () => {
  const { det, manager, actions } = start();
  manager.running();
  det.say(trial(3));
  const [item] = manager.running();
  item?.open?.();
  expect(actions.openTrial).toHaveBeenCalledWith(expect.objectContaining({ id: 3 }));
  item?.children?.[1]?.open?.();
  expect(actions.openRank).toHaveBeenCalledWith(
    expect.objectContaining({ id: 3 }),
    expect.objectContaining({ rank: 1 })
  );
  item?.shutdown?.();
  expect(actions.kill).toHaveBeenCalledWith(expect.objectContaining({ id: 3 }));
});

test('killing all says how many, and kills those', () => {
  const { det, manager, killed } = start();
  manager.running();
  det.say(trial(3), trial(4));
  expect(manager.shutdownAllConfirmationText).toMatch(/^Kill all 2 trials that hold slots\?/);
  manager.shutdownAll();
  expect(killed).toHaveBeenCalledWith([
    expect.objectContaining({ id: 3 }),
    expect.objectContaining({ id: 4 })
  ]);
});

test('a disposed section follows nothing', () => {
  const { det, manager } = start();
  manager.running();
  manager.dispose();
  manager.running();
  expect(det.followers.size).toBe(0);
});

test('a kill is confirmed, unless the settings say otherwise', async () => {
  const det = new FakeDet();
  vi.mocked(showDialog).mockResolvedValue({ button: { accept: false } } as never);
  expect(await killTrial(det.asDet, 3, '<b>')).toBe(false);
  expect(det.post).not.toHaveBeenCalled();
  vi.mocked(showDialog).mockResolvedValue({ button: { accept: true } } as never);
  expect(await killTrial(det.asDet, 3)).toBe(true);
  expect(det.post).toHaveBeenCalledWith('api/trials/3/kill');
  det.confirmKill = false;
  await killTrial(det.asDet, 4);
  expect(showDialog).toHaveBeenCalledTimes(2);
  expect(det.post).toHaveBeenCalledWith('api/trials/4/kill');
});

test('refusals are said once', async () => {
  const { Notification } = await import('@jupyterlab/apputils');
  const det = new FakeDet();
  det.post.mockRejectedValue(new Error('It has ended.'));
  expect(await killAll(det.asDet, [3])).toBe(false);
  expect(Notification.error).toHaveBeenLastCalledWith('It has ended.');
  await killAll(det.asDet, [3, 4, 5]);
  expect(Notification.error).toHaveBeenLastCalledWith('It has ended. (and 2 others)');
});
