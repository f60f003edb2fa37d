/** The state of the sidebar that is kept across a reload of the page. */
import type { IStateDB } from '@jupyterlab/statedb';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import type { Status } from '../../model/state.js';

const KEY = 'det-jupyter:sidebar';
const SOON_MS = 400;

export interface IKept {
  /** Which sections are open. */
  open: boolean[];
  /** The shares of the height that the user set by dragging a border; empty: by need. */
  chosen: number[];
  text: string;
  status: Status | '';
  labels: string[];
  scroll: { active: number; ended: number };
}

const FIRST: IKept = {
  open: [true, true, true, true, false],
  chosen: [],
  text: '',
  status: '',
  labels: [],
  scroll: { active: 0, ended: 0 }
};

export class Memory {
  constructor(private readonly _db: IStateDB | null) {}

  get kept(): Readonly<IKept> {
    return this._kept;
  }

  /** Read the stored state; invalid parts are ignored. */
  async read(): Promise<void> {
    try {
      this._kept = checked((await this._db?.fetch(KEY)) ?? {});
    } catch (error) {
      console.warn('det_jupyter: the state of the sidebar could not be read', error);
    }
    this._isRead = true;
  }

  /** Store a change soon. Changes before `read` are not the user's and are ignored. */
  keep(change: Partial<IKept>): void {
    if (!this._isRead) {
      return;
    }
    this._kept = { ...this._kept, ...change };
    clearTimeout(this._timer);
    this._timer = setTimeout(() => this._write(), SOON_MS);
  }

  dispose(): void {
    clearTimeout(this._timer);
  }

  private _write(): void {
    this._db
      ?.save(KEY, this._kept as unknown as ReadonlyPartialJSONObject)
      .catch((error: unknown) =>
        console.warn('det_jupyter: the state of the sidebar was not kept', error)
      );
  }

  private _kept: IKept = FIRST;
  private _isRead = false;
  private _timer: ReturnType<typeof setTimeout> | undefined;
}

/** Validates a value from the database. */
export function checked(value: unknown): IKept {
  const read = (typeof value === 'object' && value !== null ? value : {}) as Record<
    string,
    unknown
  >;
  const scroll = (read.scroll ?? {}) as Record<string, unknown>;
  const open = listOf(read.open, 'boolean'); // of an earlier version, there may be fewer
  return {
    open: open?.length === FIRST.open.length ? open : FIRST.open,
    chosen: listOf(read.chosen, 'number') ?? FIRST.chosen,
    text: typeof read.text === 'string' ? read.text : '',
    status: typeof read.status === 'string' ? (read.status as Status) : '',
    labels: listOf(read.labels, 'string') ?? [],
    scroll: { active: numberOf(scroll.active), ended: numberOf(scroll.ended) }
  };
}

interface ITypes {
  boolean: boolean;
  number: number;
  string: string;
}

function listOf<K extends keyof ITypes>(value: unknown, type: K): ITypes[K][] | undefined {
  return Array.isArray(value) && value.every(one => typeof one === type)
    ? (value as ITypes[K][])
    : undefined;
}

function numberOf(value: unknown): number {
  return typeof value === 'number' && Number.isFinite(value) ? value : 0;
}
