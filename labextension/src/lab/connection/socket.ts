/**
 * The WebSocket of this tab, which all documents and questions share.
 *
 *     closed --open()--> opening --hello--> open --cut--> closed        (link.ts opens it again)
 *
 * Documents outlive it: each is followed again after `hello`, with its version if that is still
 * valid. While no master runs, `hello` is the server's; the reader's comes later in the same socket.
 * Questions do not outlive it: they are rejected when it is cut. Versions are acknowledged when they
 * have been shown, so that the reader sends fewer to a slow page.
 */
import { URLExt } from '@jupyterlab/coreutils';
import type { ServerConnection } from '@jupyterlab/services';
import type { IDisposable } from '@lumino/disposable';
import { type ISignal, Signal } from '@lumino/signaling';

import { patched } from '../../model/documents.js';
import type { ITrans } from '../../model/trans.js';
import type { IDocuments, IFollowed, ISocket } from '../tokens.js';
import { decode } from './codec.js';
import type { Incoming, IPatchFrame, Outgoing } from './readerframes.js';
import { Questions } from './pendingquestions.js';
import type { IHello, IMasterState } from '../../model/answers.js';

const HELLO_MS = 75_000; // the server waits 60 s for a reader that starts (reader_sockets.py)
const PING_MS = 15_000;

/** Why a connection was lost: code and reason of a CloseEvent, or a constant below. */
export interface ILoss {
  code: number;
  reason: string;
}

const BROKEN: ILoss = { code: 1006, reason: '' }; // the code of browsers for a broken connection
export const LATE: ILoss = { code: 0, reason: '' }; // opened, but no hello arrived

interface IFollowing {
  name: string;
  args: object;
  version: number; // 0: none yet
  document: object;
  onVersion: (document: object) => void;
  onError: (sentence: string) => void;
}

export class Socket implements ISocket, IDisposable {
  constructor(
    private readonly _settings: ServerConnection.ISettings,
    private readonly _trans: ITrans
  ) {
    this._questions = new Questions(_trans);
  }

  /** Emitted after `hello`, when documents are followed again. */
  get greeted(): ISignal<this, IHello> {
    return this._greeted;
  }

  /** Emitted when the master's state has changed. */
  get master(): ISignal<this, IMasterState> {
    return this._master;
  }

  /** Emitted when the connection was lost, but not by `close`. */
  get lost(): ISignal<this, ILoss> {
    return this._lost;
  }

  get isOpen(): boolean {
    return this._isGreeted;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    if (this._isDisposed) {
      return;
    }
    this._isDisposed = true;
    this.close();
    this._followed.clear();
    this._questions.reject(this._trans.__('The page was closed.'));
    Signal.clearData(this);
  }

  /** Connect, unless it is connected or connecting. */
  open(): void {
    if (this._socket !== null || this._isDisposed) {
      return;
    }
    const { wsUrl, appendToken, token, WebSocket } = this._settings;
    const query = appendToken && token !== '' ? `?token=${encodeURIComponent(token)}` : '';
    const socket = new WebSocket(URLExt.join(wsUrl, 'det-jupyter/socket') + query);
    socket.binaryType = 'arraybuffer';
    socket.onmessage = ({ data }) => this._onMessage(data as string | ArrayBuffer);
    // An error is always followed by a close.
    socket.onclose = ({ code, reason }) => this._onLost({ code, reason });
    this._socket = socket;
    this._timer = setTimeout(() => this._onLost(LATE), HELLO_MS);
  }

  /** Disconnect without emitting `lost`; documents are kept for the next `open`. */
  close(): void {
    const socket = this._socket;
    if (socket === null) {
      return;
    }
    this._socket = null;
    this._isGreeted = false;
    clearTimeout(this._timer);
    socket.onmessage = socket.onclose = null;
    socket.close();
    this._questions.reject(
      this._trans.__('The connection to the server was cut before the answer came: ask again.')
    );
  }

  follow<K extends keyof IDocuments>(
    name: K,
    args: IDocuments[K]['args'],
    onVersion: (document: IDocuments[K]['document']) => void,
    onError: (sentence: string) => void = () => undefined
  ): IFollowed<IDocuments[K]['args']> {
    const one: IFollowing = {
      ...{ name, args, version: 0, document: {}, onError },
      onVersion: onVersion as IFollowing['onVersion']
    };
    let id = this._begin(one);
    let isDisposed = false;
    const end = (): void => this._end(id);
    return {
      change: (wanted): void => {
        if (isDisposed) {
          return;
        }
        end();
        // A new number, so that what is on its way for the old arguments is ignored.
        id = this._begin({ ...one, args: wanted, version: 0, document: {} });
      },
      dispose: () => {
        if (!isDisposed) {
          isDisposed = true;
          end();
        }
      },
      get isDisposed() {
        return isDisposed;
      }
    };
  }

  ask<T>(experimentId: number, type: string, fields: object): Promise<T> {
    const id = this._nextId++;
    const question = { type, ...fields };
    const frame: Outgoing = { op: 'ask', id, experiment_id: experimentId, question };
    if (this._isDisposed || (this._socket === null && !this.isComing)) {
      return Promise.reject(
        new Error(this._trans.__('No connection to the server. Reconnecting.'))
      );
    }
    const answer = this._questions.ask<T>(id, frame);
    if (this._isGreeted) {
      this._questions.send(frame => this._send(frame));
    }
    return answer;
  }

  /** Whether questions wait for the connection; set by link.ts. */
  isComing = true;

  /** Reject waiting questions, as no connection can be made now. */
  giveUp(): void {
    this.isComing = false;
    this._questions.reject(this._trans.__('No connection to the server. Reconnecting.'));
  }

  private _begin(one: IFollowing): number {
    const id = this._nextId++;
    if (!this._isDisposed) {
      this._followed.set(id, one);
      this._follow(id, one);
    }
    return id;
  }

  private _end(id: number): void {
    if (this._followed.delete(id) && this._isGreeted) {
      this._send({ op: 'leave', id });
    }
  }

  private _follow(id: number, { name, args, version }: IFollowing): void {
    if (this._isGreeted) {
      const frame: Outgoing = { op: 'follow', id, document: name, args };
      this._send(version > 0 ? { ...frame, version } : frame);
    }
  }

  private _send(frame: Outgoing): void {
    this._socket?.send(JSON.stringify(frame));
  }

  private _onMessage(message: string | ArrayBuffer): void {
    let frame: Incoming;
    try {
      frame = decode(message);
    } catch (error) {
      // Later frames cannot be trusted: reconnect.
      console.warn('det_jupyter: a message that cannot be read', error);
      this._instance = '';
      this._onLost();
      return;
    }
    this._isAlive = true;
    switch (frame.op) {
      case 'hello':
        this._onHello(frame);
        break;
      case 'master':
        this._master.emit(frame);
        break;
      case 'document':
        this._onVersion(frame.id, frame.version, () => frame.data);
        break;
      case 'patch':
        this._onPatch(frame);
        break;
      case 'error':
        this._onError(frame.id, frame.error);
        break;
      case 'answer':
        this._questions.answer(frame.id, frame.error, frame.data);
        break;
      case 'pong':
        this._hasPong = true;
    }
  }

  private _onHello(hello: IHello): void {
    // The server's own has none: the reader may be there again with the versions that we have.
    if (hello.instance !== '' && hello.instance !== this._instance) {
      this._instance = hello.instance;
      this._followed.forEach(one => (one.version = 0)); // a new reader counts from the beginning
    }
    this._isGreeted = true;
    this._followed.forEach((one, id) => this._follow(id, one));
    this._questions.send(frame => this._send(frame));
    this._hasPong = false;
    clearTimeout(this._timer);
    this._ping();
    this._greeted.emit(hello);
  }

  /**
   * A lost network is not reported by the browser: a connection without frames and answers to pings
   * counts as cut. A reader that does not support pings is not checked.
   */
  private _ping(): void {
    this._isAlive = false;
    this._send({ op: 'ping' });
    this._timer = setTimeout(() => {
      if (!this._isAlive && this._hasPong) {
        this._onLost();
      } else {
        this._ping();
      }
    }, PING_MS);
  }

  private _onPatch({ id, since, version, data }: IPatchFrame): void {
    const one = this._followed.get(id);
    if (one?.version === since) {
      this._onVersion(id, version, () => patched(one.document, data));
    } else if (one !== undefined && one.version > 0 && version > one.version) {
      this._refollow(id, one); // versions between were lost
    }
  }

  private _onVersion(id: number, version: number, make: () => object): void {
    const one = this._followed.get(id);
    if (one === undefined) {
      return; // it is not followed any more
    }
    if (version > one.version) {
      try {
        one.document = make();
      } catch (error) {
        console.warn('det_jupyter: a patch that does not fit', error);
        this._refollow(id, one);
        return;
      }
      one.version = version;
      handled(() => one.onVersion(one.document));
    }
    if (this._followed.has(id)) {
      this._send({ op: 'ack', id, version });
    }
  }

  /** Have the whole document sent. */
  private _refollow(id: number, one: IFollowing): void {
    one.version = 0;
    this._send({ op: 'leave', id });
    this._follow(id, one);
  }

  private _onError(id: number, sentence: string): void {
    const one = this._followed.get(id);
    if (one !== undefined) {
      this._followed.delete(id);
      handled(() => one.onError(sentence));
    }
  }

  private _onLost(loss = BROKEN): void {
    this.close();
    this._lost.emit(loss);
  }

  private readonly _followed = new Map<number, IFollowing>();
  private readonly _questions: Questions;
  private readonly _greeted = new Signal<this, IHello>(this);
  private readonly _master = new Signal<this, IMasterState>(this);
  private readonly _lost = new Signal<this, ILoss>(this);
  private _socket: WebSocket | null = null;
  private _isGreeted = false;
  private _isAlive = false;
  private _hasPong = false;
  private _isDisposed = false;
  private _instance = '';
  private _nextId = 1;
  private _timer: ReturnType<typeof setTimeout> | undefined;
}

/** An exception in what shows one document must not affect the others. */
function handled(action: () => void): void {
  try {
    action();
  } catch (error) {
    console.error(error);
  }
}
