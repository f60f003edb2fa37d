/** Answers the requests and the socket of this page from a recording, instead of a server. */
import type { IHandshake, IHello } from '../../model/answers.js';
import type { IQuestion } from '../../pageanswers.js';
import type { Incoming, Outgoing } from '../connection/readerframes.js';
import { PROTOCOL, VERSION } from '../connection/version.js';
import { answerAt, type IRecording, type ITrack, REFUSED, trackOf } from './recording.js';

const SPEED = 2;
const TICK_MS = 200;

/** The recorded session, played once from the first `at` on. */
export class Player {
  constructor(readonly recording: IRecording) {}

  /** Seconds since the beginning of the recording; they stand still at its end. */
  at(): number {
    this._startedAt ??= performance.now();
    const played = (SPEED * (performance.now() - this._startedAt)) / 1000;
    return Math.min(played, this.recording.length_s);
  }

  /** The clock of the recording, in ms. */
  now(): number {
    return 1000 * (this.recording.began_at + (this._startedAt === undefined ? 0 : this.at()));
  }

  private _startedAt: number | undefined;
}

const MASTER = { state: 'running', version: VERSION, problem: '', command: '' } as const;

/** The answer to a request below `det-jupyter/`. */
export function respond(method: string, path: string): Response {
  if (method === 'GET' && path === 'info') {
    const handshake: IHandshake = {
      ...{ version: VERSION, protocol: PROTOCOL, master: MASTER },
      ...{ may_read: true, may_write: false, may: {} }
    };
    return Response.json(handshake);
  }
  if (method === 'GET' && path === 'api/templates') {
    return Response.json([]);
  }
  const problems = [{ path: '', text: REFUSED }];
  return Response.json({ error: 'Conflict', problems }, { status: 409 });
}

interface IFollowed {
  track: ITrack;
  version: number;
}

/** What socket.ts uses of a WebSocket. */
export class RecordedSocket {
  constructor(private readonly _player: Player) {
    const hello: IHello = {
      ...{ op: 'hello', instance: 'recorded', version: VERSION, protocol: PROTOCOL },
      master: MASTER
    };
    queueMicrotask(() => this._receive(hello));
    this._timer = setInterval(() => this._tell(), TICK_MS);
  }

  binaryType = 'arraybuffer';
  onmessage: ((event: { data: string }) => void) | null = null;
  onclose: (() => void) | null = null; // never called

  send(text: string): void {
    const frame = JSON.parse(text) as Outgoing;
    switch (frame.op) {
      case 'follow':
        this._follow(frame.id, trackOf(this._player.recording, frame.document, frame.args));
        break;
      case 'leave':
        this._followed.delete(frame.id);
        break;
      case 'ask':
        this._answer(frame.id, frame.experiment_id, frame.question as IQuestion);
        break;
      case 'ping':
        this._receive({ op: 'pong' });
        break;
      case 'ack':
    }
  }

  close(): void {
    clearInterval(this._timer);
  }

  private _follow(id: number, track: ITrack | null): void {
    if (track === null) {
      this._receive({ op: 'error', id, error: 'This was not recorded.' });
    } else {
      this._followed.set(id, { track, version: 0 });
      this._tell();
    }
  }

  private _answer(id: number, experimentId: number, question: IQuestion): void {
    const { recording } = this._player;
    const data = answerAt(recording, experimentId, question, this._player.at());
    const { error = '' } = data as { error?: string };
    this._receive({ op: 'answer', id, error, data });
  }

  /** Send the versions that have come. */
  private _tell(): void {
    const time = this._player.at();
    for (const [id, followed] of this._followed) {
      const newest = followed.track.at(time);
      if (newest !== null && newest.version > followed.version) {
        followed.version = newest.version;
        this._receive({ op: 'document', id, ...newest });
      }
    }
  }

  private _receive(frame: Incoming): void {
    const data = JSON.stringify(frame);
    queueMicrotask(() => this.onmessage?.({ data }));
  }

  private readonly _followed = new Map<number, IFollowed>();
  private readonly _timer: ReturnType<typeof setInterval>;
}
