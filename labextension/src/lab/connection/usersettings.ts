/** The user's settings, from the setting registry, or the defaults without one. */
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import { type ISignal, Signal } from '@lumino/signaling';

import type { ILabSettings, ISettingValues } from '../tokens.js';

const SCHEMA = 'det-jupyter:settings'; // schema/settings.json

/** The defaults of schema/settings.json; a test compares them. */
export const DEFAULTS: ISettingValues = {
  notifyEnded: 'always',
  notifyDesktop: false,
  notifyBest: true,
  showStatusBar: true,
  showNotebookButton: true,
  liveOutputs: true,
  openBeside: false,
  usagePeriod: 2,
  updateWhenHidden: false,
  sortBy: 'newest',
  showArchived: false,
  confirmKill: true,
  newCell:
    'entrypoint: MyTrial\nhyperparameters:\n  global_batch_size: 64\nsearcher:\n  name: single\n' +
    '  metric: validation_loss\n  max_length: {batches: 1000}\nresources:\n  slots_per_trial: 1\n'
};

export class LabSettings implements ILabSettings {
  /** Read the settings; the defaults apply before, and if they cannot be read. */
  async load(registry: ISettingRegistry): Promise<void> {
    try {
      const settings = await registry.load(SCHEMA);
      if (this._isDisposed) {
        return;
      }
      this._settings = settings;
      settings.changed.connect(this._onChanged, this);
      this._onChanged();
    } catch (error) {
      console.warn('det_jupyter: its settings cannot be read; the defaults count', error);
    }
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get<K extends keyof ISettingValues>(key: K): ISettingValues[K] {
    const value = this._unsaved.has(key) ? this._unsaved.get(key) : this._settings?.composite[key];
    return value === undefined ? DEFAULTS[key] : (value as ISettingValues[K]);
  }

  /** Applies at once. Saves are made in order, so that the last value stays. */
  async set<K extends keyof ISettingValues>(key: K, value: ISettingValues[K]): Promise<void> {
    const settings = this._settings;
    if (settings === null) {
      return;
    }
    this._unsaved.set(key, value);
    this._changed.emit();
    const saved = this._saving.then(() => settings.set(key, value));
    this._saving = saved.catch(() => undefined);
    try {
      await saved;
    } finally {
      if (this._unsaved.get(key) === value) {
        this._unsaved.delete(key);
        this._changed.emit();
      }
    }
  }

  dispose(): void {
    this._isDisposed = true;
    Signal.clearData(this);
  }

  private _onChanged(): void {
    this._changed.emit();
  }

  private readonly _changed = new Signal<this, void>(this);
  private readonly _unsaved = new Map<keyof ISettingValues, unknown>();
  private _saving: Promise<void> = Promise.resolve();
  private _settings: ISettingRegistry.ISettings | null = null;
  private _isDisposed = false;
}
