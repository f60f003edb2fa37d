// @vitest-environment happy-dom
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import { Signal } from '@lumino/signaling';
import { beforeEach, expect, it, vi } from 'vitest';

import schema from '../../../schema/settings.json';
import { ClusterModel } from '../../../src/lab/connection/connection.js';
import { Experiments } from '../../../src/lab/connection/connection.js';
import { DEFAULTS, LabSettings } from '../../../src/lab/connection/usersettings.js';
import { Socket } from '../../../src/lab/connection/socket.js';
import { Trials } from '../../../src/lab/connection/connection.js';
import type { IExperimentRow } from '../../../src/model/state.js';
import { english } from '../../../src/model/trans.js';
import { type FakeSocket, fakeServer, lastSocket } from './fakes.js';

let socket: Socket;
let fake: FakeSocket;

const say = (version: number, data: object): void =>
  fake.say({ op: 'document', id: 1, version, data });
const line = (id: number, name = ''): IExperimentRow => ({ id, name }) as IExperimentRow;

beforeEach(() => {
  const server = fakeServer();
  socket = new Socket(server.settings, english);
  socket.open();
  fake = lastSocket(server);
  fake.hello();
});

it('of experiments those are told that have changed', () => {
  const experiments = new Experiments(socket);
  const changed: (readonly number[] | null)[] = [];
  experiments.changed.connect((_, ids) => changed.push(ids));
  expect(experiments.isReady).toBe(false);
  const [first, second] = [line(1), line(2)];
  say(1, { rows: { 1: first, 2: second } });
  const data = [
    { op: 'remove', path: '/rows/1' },
    { op: 'replace', path: '/rows/2/name', value: 'new' },
    { op: 'add', path: '/rows/3', value: line(3) },
    { op: 'add', path: '/rows/4', value: line(4) }
  ];
  fake.say({ op: 'patch', id: 1, since: 1, version: 2, data });
  expect([...experiments.rows.keys()]).toEqual([2, 3, 4]);
  expect(experiments.rows.get(2)?.name).toBe('new');
  fake.say({ op: 'patch', id: 1, since: 2, version: 3, data: [{ op: 'remove', path: '/rows/4' }] });
  expect(changed).toEqual([null, [2, 3, 4, 1], [4]]);
  expect(experiments.isReady).toBe(true);
  experiments.dispose();
  experiments.dispose();
  say(4, { rows: {} });
  expect(experiments.rows.size).toBe(2);
});

it('the cluster is what its newest version says', () => {
  const cluster = new ClusterModel(socket);
  const seen = vi.fn();
  cluster.changed.connect(seen);
  expect(cluster.state).toBeNull();
  const data = { agents: [], summary: 'none', num_running: 0 };
  say(1, data);
  expect(cluster.state).toEqual(data);
  expect(seen).toHaveBeenCalledOnce();
  cluster.dispose();
});

it('trials are one document, however many follow them, and none when nobody does', () => {
  const trials = new Trials(socket);
  const [one, other] = [vi.fn(), vi.fn()];
  fake.taken();
  const first = trials.follow(one);
  say(1, { trials: [{ id: 5 }] });
  const second = trials.follow(other);
  expect(other).toHaveBeenCalledWith([{ id: 5 }]); // at once
  expect(fake.taken().filter(({ op }) => op === 'follow')).toHaveLength(1);
  first.dispose();
  first.dispose();
  say(2, { trials: [] });
  expect(one).toHaveBeenCalledOnce();
  expect(other).toHaveBeenCalledTimes(2);
  second.dispose();
  expect(fake.taken().at(-1)).toEqual({ op: 'leave', id: 1 });
});

it('the defaults are those of the schema', () => {
  const defaults = Object.entries(schema.properties).map(([key, value]) => [key, value.default]);
  expect(Object.fromEntries(defaults)).toEqual(DEFAULTS);
});

it('settings are those of the registry as soon as it is there', async () => {
  const settings = new LabSettings();
  const seen = vi.fn();
  settings.changed.connect(seen);
  expect(settings.get('usagePeriod')).toBe(2);
  await settings.set('usagePeriod', 5); // nowhere to keep it
  const loaded = {
    composite: { usagePeriod: 3 },
    set: vi.fn(() => Promise.resolve()),
    changed: new Signal({})
  };
  const load = vi.fn(() => Promise.resolve(loaded));
  await settings.load({ load } as unknown as ISettingRegistry);
  expect(load).toHaveBeenCalledWith('det-jupyter:settings');
  expect(settings.get('usagePeriod')).toBe(3);
  expect(settings.get('confirmKill')).toBe(true);
  expect(seen).toHaveBeenCalledOnce();
  await settings.set('usagePeriod', 5);
  expect(loaded.set).toHaveBeenCalledWith('usagePeriod', 5);
  seen.mockClear();
  settings.dispose();
  loaded.changed.emit(undefined);
  expect(seen).not.toHaveBeenCalled();
});

it('of two changes that follow each other soon, the last one counts', async () => {
  const settings = new LabSettings();
  const saved: (() => void)[] = [];
  const composite = { sortBy: 'newest' };
  const changed = new Signal<object, void>({});
  const set = (_: string, value: string): Promise<void> =>
    new Promise(resolve => {
      saved.push(() => {
        composite.sortBy = value;
        changed.emit();
        resolve();
      });
    });
  const load = (): Promise<unknown> => Promise.resolve({ composite, set, changed });
  await settings.load({ load } as unknown as ISettingRegistry);
  const both = [settings.set('sortBy', 'name'), settings.set('sortBy', 'newest')];
  expect(settings.get('sortBy')).toBe('newest');
  for (let i = 0; i < both.length; i++) {
    await vi.waitFor(() => expect(saved).toHaveLength(i + 1));
    saved[i]?.();
    await both[i];
    expect(settings.get('sortBy')).toBe('newest');
  }
  expect(composite.sortBy).toBe('newest');
});

it('settings that cannot be read leave the defaults', async () => {
  const warned = vi.spyOn(console, 'warn').mockImplementation(() => undefined);
  const settings = new LabSettings();
  const load = (): Promise<never> => Promise.reject(new Error('no schema'));
  await settings.load({ load } as unknown as ISettingRegistry);
  expect(settings.get('showStatusBar')).toBe(true);
  expect(warned).toHaveBeenCalledOnce();
});
