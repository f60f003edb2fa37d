/** The user's settings of each view (tab, zoom, metrics, chosen trial), kept across reloads. */
import type { IStateDB } from '@jupyterlab/statedb';
import type { ReadonlyPartialJSONValue } from '@lumino/coreutils';

import type { ISettings } from '../../model/viewsettings.js';

export interface ILook {
  settings: Partial<ISettings>;
  /** The trial of a search whose details are shown. */
  chosen: number | null;
}

const MOST = 50; // the newest are kept; each takes some 300 bytes
const SAVED_AFTER_MS = 300;

export class Looks {
  /**
   * @param database - Stores the looks; without it, they are kept until the page is reloaded.
   * @param key - The key of the looks in the database.
   */
  constructor(
    private readonly _database: IStateDB | null,
    private readonly _key: string
  ) {}

  /** Resolves when the looks from before the reload have been read. */
  ready(): Promise<void> {
    return (this._loaded ??= this._load());
  }

  /** The settings of the view with this name. */
  of(name: string): ILook {
    return this._looks.get(name) ?? { settings: {}, chosen: null };
  }

  change(name: string, part: Partial<ILook>): void {
    const look = { ...this.of(name), ...part };
    this._looks.delete(name);
    this._looks.set(name, look);
    [...this._looks.keys()].slice(0, -MOST).forEach(old => this._looks.delete(old));
    clearTimeout(this._timer);
    this._timer = setTimeout(() => void this._save(), SAVED_AFTER_MS);
  }

  private async _load(): Promise<void> {
    try {
      const saved = (await this._database?.fetch(this._key)) as Record<string, ILook> | undefined;
      this._looks = new Map([...Object.entries(saved ?? {}), ...this._looks]);
    } catch (error) {
      console.warn('det_jupyter: how views were set cannot be read', error);
    }
  }

  private async _save(): Promise<void> {
    try {
      await this.ready();
      const plain = Object.fromEntries(this._looks) as unknown as ReadonlyPartialJSONValue;
      await this._database?.save(this._key, plain);
    } catch (error) {
      console.warn('det_jupyter: how views are set cannot be saved', error);
    }
  }

  private _looks = new Map<string, ILook>();
  private _loaded: Promise<void> | undefined;
  private _timer: ReturnType<typeof setTimeout> | undefined;
}
