/**
 * Connects this page: the handshake, then the socket; and reconnects.
 *
 *     start, retry -> info --> socket.open --> hello --> up, no-master, connecting (it starts), mismatch
 *                      |             |
 *                      |             +-- lost --> cut: again after a pause that doubles, with jitter
 *                      +-- refused, no-extension, mismatch: again every minute
 *
 * A page that has been hidden for a while is disconnected, and connected when it is visible again.
 */
import type { IDisposable } from '@lumino/disposable';
import { type ISignal, Signal } from '@lumino/signaling';

import type { ITrans } from '../../model/trans.js';
import type { ILabSettings, ILink, LinkState } from '../tokens.js';
import { type Api, RequestError } from './api.js';
import type { ILoss, Socket } from './socket.js';
import {
  type ITrouble,
  handshakeTrouble,
  infoTrouble,
  lossTrouble,
  masterTrouble
} from './troubles.js';
import type { IHandshake, IHello, IMasterState } from '../../model/answers.js';

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 30_000;
const SLOW_PAUSE_MS = 60_000; // for problems that the user has to solve
const INFO_MS = 20_000;
const STEADY_MS = 10_000; // a connection that lasts so long resets the pauses
const START_MS = 60_000; // time that a master has to start
const HIDDEN_MS = 60_000;

interface ILinkOptions {
  api: Api;
  socket: Socket;
  settings: ILabSettings;
  trans: ITrans;
}

export class Link implements ILink, IDisposable {
  constructor({ api, socket, settings, trans }: ILinkOptions) {
    this._api = api;
    this._socket = socket;
    this._settings = settings;
    this._trans = trans;
    socket.greeted.connect((_, hello) => this._onGreeted(hello), this);
    socket.master.connect((_, master) => this._onMaster(master), this);
    socket.lost.connect(this._onLost, this);
    document.addEventListener('visibilitychange', this._onVisibility);
    window.addEventListener('online', this._onOnline);
  }

  get state(): LinkState {
    return this._state;
  }

  get sentence(): string {
    return this._trouble.sentence;
  }

  get command(): string {
    return this._trouble.command;
  }

  get mayWrite(): boolean {
    return this._mayWrite;
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    if (this._isDisposed) {
      return;
    }
    this._isDisposed = true;
    document.removeEventListener('visibilitychange', this._onVisibility);
    window.removeEventListener('online', this._onOnline);
    this._stop();
    Signal.clearData(this);
  }

  /** Connect at once, also during a pause. */
  retry(): void {
    this._tries = 0;
    void this._connect();
  }

  private async _connect(): Promise<void> {
    if (this._isDisposed) {
      return;
    }
    this._stop();
    this._isPaused = false;
    this._socket.isComing = true;
    const asked = new AbortController();
    this._asked = asked;
    const timer = setTimeout(() => asked.abort(), INFO_MS);
    try {
      const info = await this._api.request<IHandshake>('GET', 'info', undefined, asked.signal);
      if (this._asked === asked) {
        this._onInfo(info);
      }
    } catch (error) {
      if (this._asked === asked) {
        this._fail(infoTrouble(this._trans, error as RequestError));
      }
    } finally {
      clearTimeout(timer);
    }
  }

  private _onInfo(info: IHandshake): void {
    const trouble = handshakeTrouble(this._trans, info);
    if (trouble !== null) {
      this._fail(trouble);
      return;
    }
    if (this._mayWrite !== info.may_write) {
      this._mayWrite = info.may_write;
      this._changed.emit();
    }
    if (this._socket.isOpen) {
      this._onMaster(info.master);
    } else {
      this._socket.open();
    }
  }

  private _onGreeted(hello: IHello): void {
    this._greetedAt = performance.now();
    // The reader is started anew at times, and may be of a version that was installed meanwhile.
    const trouble = handshakeTrouble(this._trans, { ...hello, may_read: true });
    if (trouble !== null) {
      this._fail(trouble);
      return;
    }
    this._onMaster(hello.master);
  }

  private _onMaster(master: IMasterState): void {
    clearTimeout(this._startTimer);
    this._say(masterTrouble(this._trans, master));
    if (master.state === 'starting') {
      const problem = this._trans.__('The master has not started within a minute.');
      const late: IMasterState = { state: 'stopped', version: '', problem, command: '' };
      this._startTimer = setTimeout(() => this._onMaster(late), START_MS);
    }
  }

  private _onLost(_: Socket, loss: ILoss): void {
    const greetedAt = this._greetedAt;
    this._greetedAt = null;
    if (greetedAt !== null && performance.now() - greetedAt > STEADY_MS) {
      this._tries = 0;
    }
    this._fail(lossTrouble(this._trans, loss, greetedAt !== null));
  }

  /** Publish the problem and retry after a pause. */
  private _fail(trouble: ITrouble): void {
    this._stop();
    this._socket.close();
    this._socket.giveUp();
    let pause = SLOW_PAUSE_MS;
    if (trouble.state === 'cut') {
      pause = Math.min(FIRST_PAUSE_MS * 2 ** this._tries++, LONGEST_PAUSE_MS);
      pause *= 0.5 + Math.random() / 2; // jitter: tabs that were cut at once do not reconnect at once
    }
    this._timer = setTimeout(() => void this._connect(), pause);
    this._say(trouble);
  }

  /** Cancel the pending connection and retry. */
  private _stop(): void {
    this._asked?.abort();
    this._asked = null;
    clearTimeout(this._timer);
    clearTimeout(this._startTimer);
    clearTimeout(this._hiddenTimer);
  }

  private _say(trouble: ITrouble): void {
    const { state, sentence, command } = this._trouble;
    if (state !== trouble.state || sentence !== trouble.sentence || command !== trouble.command) {
      this._trouble = trouble;
      this._changed.emit();
    }
  }

  private get _state(): LinkState {
    return this._trouble.state;
  }

  private readonly _onVisibility = (): void => {
    clearTimeout(this._hiddenTimer);
    if (document.visibilityState === 'hidden') {
      this._hiddenTimer = setTimeout(() => this._pause(), HIDDEN_MS);
    } else if (this._isPaused || this._state === 'cut') {
      this.retry();
    }
  };

  private _pause(): void {
    const isWanted = this._settings.get('updateWhenHidden') || this._settings.get('notifyDesktop');
    if (!isWanted) {
      this._stop();
      this._isPaused = true;
      this._socket.close();
      this._greetedAt = null;
    }
  }

  private readonly _onOnline = (): void => {
    if (this._state === 'cut') {
      this.retry();
    }
  };

  private readonly _api: Api;
  private readonly _socket: Socket;
  private readonly _settings: ILabSettings;
  private readonly _trans: ITrans;
  private readonly _changed = new Signal<this, void>(this);
  private _trouble: ITrouble = { state: 'connecting', sentence: '', command: '' };
  private _mayWrite = false;
  private _tries = 0;
  private _greetedAt: number | null = null;
  private _asked: AbortController | null = null;
  private _isPaused = false;
  private _isDisposed = false;
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _startTimer: ReturnType<typeof setTimeout> | undefined;
  private _hiddenTimer: ReturnType<typeof setTimeout> | undefined;
}
