/** A connection whose state the tests set. */
import type { ServerConnection } from '@jupyterlab/services';
import { nullTranslator } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';
import { vi } from 'vitest';

import { DEFAULTS } from '../../../src/lab/connection/usersettings.js';
import type {
  IApi,
  IClusterModel,
  IDetJupyter,
  IExperiments,
  ILabSettings,
  ILink,
  ISettingValues
} from '../../../src/lab/tokens.js';
import type { IClusterState, IDiskLine, IExperimentRow, Verb } from '../../../src/model/state.js';

export type Server = ServerConnection.ISettings;

export function line(id: number, fields: Partial<IExperimentRow> = {}): IExperimentRow {
  const verbs: Verb[] = ['pause', 'activate', 'kill'];
  return {
    id,
    key: `key-${id}`,
    name: 'DigitsTrial',
    status: 'running',
    status_word: 'running',
    progress: 0.5,
    metric: 'accuracy',
    smaller_is_better: false,
    best_metric: null,
    num_trials: 1,
    num_slots: 2,
    labels: [],
    description: '',
    notebook: 'digits.ipynb',
    entrypoint: 'DigitsTrial',
    created_at: 1000 + id,
    ended_at: null,
    held_s: 0,
    queue_place: null,
    priority: 42,
    position: id,
    is_archived: false,
    is_unmanaged: false,
    is_quiet: false,
    wait: '',
    remedies: [],
    failure: '',
    alarm: '',
    alarm_kind: '',
    actions: verbs.map(verb => ({ verb, label: verb, enabled: verb !== 'activate', why: '' })),
    ...fields
  };
}

export class FakeExperiments implements IExperiments {
  isReady = false;
  readonly rows = new Map<number, IExperimentRow>();
  readonly changed = new Signal<this, readonly number[] | null>(this);

  /** The first list, or the one after a reconnection. */
  setWhole(...rows: IExperimentRow[]): void {
    this.rows.clear();
    rows.forEach(row => this.rows.set(row.id, row));
    this.isReady = true;
    this.changed.emit(null);
  }

  setSome(...rows: IExperimentRow[]): void {
    rows.forEach(row => this.rows.set(row.id, row));
    this.changed.emit(rows.map(({ id }) => id));
  }
}

export class FakeCluster implements IClusterModel {
  state: IClusterState | null = null;
  readonly changed = new Signal<this, IClusterState>(this);

  set(state: IClusterState): void {
    this.state = state;
    this.changed.emit(state);
  }

  setDisks(...disks: IDiskLine[]): void {
    this.set({
      agents: [],
      more_lost: '',
      disks,
      summary: '',
      num_running: 0,
      num_waiting: 0,
      num_slots: 0,
      num_slots_used: 0
    });
  }
}

export class FakeSettings implements ILabSettings {
  readonly values: ISettingValues = { ...DEFAULTS };
  readonly changed = new Signal<this, void>(this);

  get<K extends keyof ISettingValues>(key: K): ISettingValues[K] {
    return this.values[key];
  }

  set<K extends keyof ISettingValues>(key: K, value: ISettingValues[K]): Promise<void> {
    this.values[key] = value;
    this.changed.emit();
    return Promise.resolve();
  }
}

export class FakeDet {
  readonly post = vi.fn<IApi['post']>().mockResolvedValue({});
  readonly api = { post: this.post } as unknown as IApi;
  readonly settings = new FakeSettings();
  readonly trans = nullTranslator.load('det_jupyter');
  readonly experiments = new FakeExperiments();
  readonly cluster = new FakeCluster();
  readonly retry = vi.fn();
  readonly linkChanged = new Signal<this, ILink>(this);
  link: ILink = { state: 'up', sentence: '', command: '', mayWrite: true };

  setLink(link: Partial<ILink>): void {
    this.link = { ...this.link, ...link };
    this.linkChanged.emit(this.link);
  }

  get asDet(): IDetJupyter {
    return this as unknown as IDetJupyter;
  }
}
