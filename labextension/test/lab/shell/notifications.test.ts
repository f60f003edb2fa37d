// @vitest-environment happy-dom
import './jupyterlab.js';
import { Notification } from '@jupyterlab/apputils';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import { Notifier } from '../../../src/lab/shell/notifications.js';
import { Commands } from '../../../src/lab/tokens.js';
import type { IDiskLine, IExperimentRow } from '../../../src/model/state.js';
import { FakeDet, line } from './fake.js';

beforeEach(() => {
  vi.useFakeTimers();
  vi.spyOn(document, 'hasFocus').mockReturnValue(true);
  vi.clearAllMocks();
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

function start(...rows: IExperimentRow[]) {
  const det = new FakeDet();
  const execute = vi.fn();
  new Notifier({ execute, hasCommand: id => id !== Commands.showSidebar }, det.asDet);
  det.experiments.setWhole(...rows);
  return { det, execute };
}

/** The messages so far, after what is gathered was said; `+` marks one that replaces another. */
async function said(afterMs = 1000): Promise<string[]> {
  await vi.advanceTimersByTimeAsync(afterMs);
  const emitted = vi.mocked(Notification.emit).mock;
  const updated = vi.mocked(Notification.update).mock;
  const order = [...emitted.invocationCallOrder, ...updated.invocationCallOrder];
  return [
    ...emitted.calls.map(([message]) => message),
    ...updated.calls.map(([{ message }]) => `+ ${message}`)
  ]
    .map((message, i) => [order[i] ?? 0, message] as const)
    .sort(([one], [two]) => one - two)
    .map(([, message]) => message);
}
/** Click on what JupyterLab shows of the last notification. */
function close(): void {
  const { value: id } = vi.mocked(Notification.emit).mock.results.at(-1) as { value: string };
  const shown = document.createElement('div');
  shown.id = id;
  document.body.append(shown);
  shown.click();
  shown.remove();
}
function dismiss(): void {
  vi.mocked(Notification.emit).mock.results.forEach(({ value }) => {
    Notification.dismiss(value as string);
  });
}
const over = { status: 'completed', ended_at: 9000 } as const;
const failed = (id: number): IExperimentRow =>
  line(id, { status: 'error', failure: 'rank 1: boom', ended_at: 9 });

test('a failure stays until it is closed, and opens the logs', async () => {
  const { det, execute } = start(line(1));
  det.experiments.setSome(failed(1));
  expect(await said()).toEqual(['Experiment 1 failed (DigitsTrial): rank 1: boom']);
  const [, type, options] = vi.mocked(Notification.emit).mock.calls[0] ?? [];
  expect(type).toBe('error');
  expect(options?.autoClose).toBe(false);
  expect(options?.actions?.map(({ label }) => label)).toEqual(['Open Logs', 'Open']);
  options?.actions?.[0]?.callback({} as MouseEvent);
  expect(execute).toHaveBeenCalledWith(Commands.openLogs, { experiment_id: 1 });
});

test('a reconnection repeats nothing, and says what happened meanwhile', async () => {
  const { det } = start(line(1), line(2));
  det.experiments.setSome(failed(1));
  expect(await said()).toHaveLength(1);
  det.experiments.setWhole(failed(1), failed(2));
  expect(await said()).toHaveLength(2);
});

test('failures are one notification, until it is dismissed', async () => {
  const ids = [1, 2, 3, 4, 5, 6, 7, 8];
  const { det } = start(...ids.map(id => line(id)));
  det.experiments.setSome(failed(1));
  await said();
  det.experiments.setSome(failed(2), failed(3));
  await said(60_000);
  det.experiments.setSome(...[4, 5, 6].map(failed));
  expect(await said()).toEqual([
    'Experiment 1 failed (DigitsTrial): rank 1: boom',
    '+ 3 experiments failed (1, 2, 3)',
    '+ 6 experiments failed'
  ]);
  close();
  det.experiments.setSome(failed(7));
  expect((await said())[3]).toBe('+ Experiment 7 failed (DigitsTrial): rank 1: boom');
  dismiss();
  det.experiments.setSome(failed(8));
  expect((await said())[4]).toBe('Experiment 8 failed (DigitsTrial): rank 1: boom');
});

test('of 290 experiments that end one after the other, two notifications are shown', async () => {
  const ids = Array.from({ length: 290 }, (_, i) => i + 1);
  const { det } = start(...ids.map(id => line(id)));
  for (const id of ids) {
    det.experiments.setSome(id % 100 === 0 ? failed(id) : line(id, { ...over, ended_at: 9000 }));
    await vi.advanceTimersByTimeAsync(300);
  }
  await said();
  expect(Notification.emit).toHaveBeenCalledTimes(2);
  expect((await said()).slice(-1)).toEqual(['+ 288 experiments have ended']);
});

test('ends long after each other are mentioned one by one, in the same place', async () => {
  const { det } = start(line(1), line(2));
  det.experiments.setSome(line(1, { ...over, best_metric: 0.9 }));
  await said(60_000);
  det.experiments.setSome(line(2, { ...over, best_metric: 0.8 }));
  expect(await said()).toEqual([
    'Experiment 1 (DigitsTrial) has ended: accuracy 0.9000',
    '+ Experiment 2 (DigitsTrial) has ended: accuracy 0.8000'
  ]);
});

test('what ended within seconds is not mentioned, unless it failed', async () => {
  const { det } = start(line(1), line(2), line(3));
  const soon = { ended_at: 1005 };
  det.experiments.setSome(
    line(1, { ...soon, status: 'completed' }),
    line(2, { ...soon, status: 'error', failure: 'rank 1: boom' })
  );
  expect(await said()).toEqual(['Experiment 2 failed (DigitsTrial): rank 1: boom']);
});

test('nothing waits for a new best that waits, and the best no longer for that', async () => {
  const search = (best: number): IExperimentRow => line(1, { num_trials: 9, best_metric: best });
  const { det } = start(search(0.1), line(2), line(3));
  det.experiments.setSome(search(0.2));
  expect(await said()).toHaveLength(1);
  det.experiments.setSome(search(0.4));
  expect(await said(9000)).toHaveLength(1);
  det.experiments.setSome(failed(2));
  expect((await said()).slice(1)).toEqual(['Experiment 2 failed (DigitsTrial): rank 1: boom']);
  det.experiments.setSome(line(3, { ...over, best_metric: 0.8 }));
  expect(await said()).toHaveLength(3);
  expect(await said(17_000)).toHaveLength(3);
  expect((await said(2000)).at(-1)).toContain(
    'Search 1 (DigitsTrial) has a new best: accuracy 0.4'
  );
});

test('bests of a search come at most every half minute, the newest of them', async () => {
  const search = (best: number): IExperimentRow => line(1, { num_trials: 9, best_metric: best });
  const { det } = start(search(0.1));
  det.experiments.setSome(search(0.2));
  expect(await said()).toHaveLength(1);
  det.experiments.setSome(search(0.3));
  det.experiments.setSome(search(0.4));
  expect(await said()).toHaveLength(1);
  expect((await said(31_000))[1]).toContain(
    '+ Search 1 (DigitsTrial) has a new best: accuracy 0.4'
  );
  expect(await said(60_000)).toHaveLength(2);
});

test('nothing is said that the user does not want', async () => {
  const { det } = start(line(1), line(2));
  await det.settings.set('notifyEnded', 'failed');
  det.experiments.setSome(line(1, over), failed(2));
  expect(await said()).toHaveLength(1);
  await det.settings.set('notifyEnded', 'never');
  det.experiments.setSome(failed(3));
  expect(await said()).toHaveLength(1);
});

test('of two tabs, one says it', async () => {
  const held = new Set<string>();
  const request = (key: string, _options: object, take: (lock: object | null) => unknown) => {
    const isFree = !held.has(key);
    held.add(key);
    void take(isFree ? {} : null);
    return new Promise(() => undefined);
  };
  vi.stubGlobal('navigator', { locks: { request } });
  const [first, second] = [start(line(1)), start(line(1))];
  first.det.experiments.setSome(failed(1));
  second.det.experiments.setSome(failed(1));
  expect(await said()).toHaveLength(1);
});

/** A browser that has notifications, with this permission. */
function browser(permission: NotificationPermission) {
  const shown: { title: string; options: NotificationOptions; onclick: () => void }[] = [];
  class Desktop {
    static permission = permission;
    static requestPermission = vi.fn(() => Promise.resolve('granted' as const));
    onclick = (): void => undefined;
    close = vi.fn();
    constructor(
      readonly title: string,
      readonly options: NotificationOptions
    ) {
      shown.push(this);
    }
  }
  vi.stubGlobal('Notification', Desktop);
  return { shown, Desktop };
}

test('on the desktop, while the page has no focus, if the user wants it', async () => {
  const { shown } = browser('granted');
  const { det, execute } = start(line(1), line(2), line(3));
  det.experiments.setSome(failed(1));
  await said();
  await det.settings.set('notifyDesktop', true);
  det.experiments.setSome(failed(2));
  await said();
  expect(shown).toEqual([]);
  dismiss();
  vi.mocked(document.hasFocus).mockReturnValue(false);
  det.experiments.setSome(failed(3));
  await said(5000);
  expect(shown.map(({ title, options }) => [title, options.body])).toEqual([
    ['Experiment failed', 'Experiment 3 failed (DigitsTrial): rank 1: boom']
  ]);
  shown[0]?.onclick();
  expect(execute).toHaveBeenCalledWith(Commands.openExperiment, { experiment_id: 3 });
});

test('permission is asked by a button, once the setting is on', async () => {
  const { Desktop } = browser('default');
  const { det } = start(line(1));
  expect(await said()).toEqual([]);
  await det.settings.set('notifyDesktop', true);
  await det.settings.set('notifyBest', false);
  expect(await said()).toHaveLength(1);
  const [, , options] = vi.mocked(Notification.emit).mock.calls[0] ?? [];
  expect(Desktop.requestPermission).not.toHaveBeenCalled();
  options?.actions?.[0]?.callback({} as MouseEvent);
  expect(Desktop.requestPermission).toHaveBeenCalledOnce();
});

test.each([
  ['denied', 'The browser does not allow this page to notify you.'],
  [undefined, 'This browser has no notifications here; it needs https, or localhost.']
] as const)('a browser that is %s says so', async (permission, text) => {
  if (permission === undefined) {
    vi.stubGlobal('Notification', undefined);
    Reflect.deleteProperty(globalThis, 'Notification');
  } else {
    browser(permission);
  }
  const { det } = start(line(1));
  await det.settings.set('notifyDesktop', true);
  expect(await said()).toEqual([text]);
});

function disk(key: string, isFull: boolean): IDiskLine {
  return { key, is_full: isFull, sentence: `${key}: 0 bytes free.` };
}

test('a disk that becomes full is mentioned once, and again when it was free meanwhile', async () => {
  const { det } = start(line(1));
  det.cluster.setDisks(disk('full before', true), disk('/data', false));
  expect(await said()).toEqual([]);
  const text = 'A disk is full: /data: 0 bytes free.';
  det.cluster.setDisks(disk('full before', true), disk('/data', true));
  det.cluster.setDisks(disk('/data', true));
  expect(await said()).toEqual([text]);
  det.cluster.setDisks();
  det.cluster.setDisks(disk('/data', true));
  expect(await said()).toEqual([text, '+ 2 disks are full']);
  expect(vi.mocked(Notification.emit).mock.calls[0]?.[2]?.autoClose).toBe(false);
});

test('with notifications off, full disks are not mentioned either', async () => {
  const { det } = start(line(1));
  await det.settings.set('notifyEnded', 'never');
  det.cluster.setDisks();
  det.cluster.setDisks(disk('/data', true));
  expect(await said()).toEqual([]);
});
