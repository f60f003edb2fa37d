/** A Jupyter server that does what a test says: its sockets, and its answers to requests. */
import type { ServerConnection } from '@jupyterlab/services';

import type { Outgoing } from '../../../src/lab/connection/readerframes.js';
import { PROTOCOL, VERSION } from '../../../src/lab/connection/version.js';
import type { IHandshake, IHello, IMasterState } from '../../../src/model/answers.js';

export class FakeSocket {
  constructor(readonly url: string) {}

  binaryType = 'blob';
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onclose: ((event: { code: number; reason: string }) => void) | null = null;
  isClosed = false;
  readonly sent: Outgoing[] = [];

  send(text: string): void {
    this.sent.push(JSON.parse(text) as Outgoing);
  }

  close(): void {
    this.isClosed = true;
  }

  /** The frames that the page has sent since the last call, but for pings. */
  taken(): Outgoing[] {
    return this.sent.splice(0).filter(({ op }) => op !== 'ping');
  }

  say(frame: object): void {
    this.onmessage?.({ data: JSON.stringify(frame) });
  }

  hello(fields: Partial<IHello> = {}): void {
    const about = { version: VERSION, protocol: PROTOCOL, master: RUNNING };
    this.say({ op: 'hello', instance: 'one', ...about, ...fields });
  }

  /** The other side, or the network, ends it. */
  cut(code = 1006, reason = ''): void {
    this.onclose?.({ code, reason });
  }
}

export const RUNNING: IMasterState = {
  state: 'running',
  version: VERSION,
  problem: '',
  command: ''
};

export const INFO: IHandshake = {
  version: VERSION,
  protocol: PROTOCOL,
  may_read: true,
  may_write: true,
  may: {},
  master: RUNNING
};

export interface IServer {
  settings: ServerConnection.ISettings;
  sockets: FakeSocket[];
  requests: Request[];
  /** What is answered from now on: a status and a body; an Error is a network that is gone, null no answer. */
  answer: { status: number; body: unknown } | Error | null;
}

/** The socket that was opened last. */
export function lastSocket(server: IServer): FakeSocket {
  const socket = server.sockets.at(-1);
  if (socket === undefined) {
    throw new Error('no socket was opened');
  }
  return socket;
}

export function fakeServer(fields: Partial<ServerConnection.ISettings> = {}): IServer {
  const server: IServer = {
    sockets: [],
    requests: [],
    answer: { status: 200, body: INFO },
    settings: null as unknown as ServerConnection.ISettings
  };
  class WebSocket extends FakeSocket {
    constructor(url: string) {
      super(url);
      server.sockets.push(this);
    }
  }
  server.settings = {
    baseUrl: 'http://host/user/me/',
    wsUrl: 'ws://host/user/me/',
    appUrl: '/lab',
    token: 'secret',
    appendToken: false,
    init: { cache: 'no-store' },
    Request,
    Headers,
    WebSocket: WebSocket as unknown as typeof globalThis.WebSocket,
    fetch: request => {
      const { signal } = request as Request;
      server.requests.push(request as Request);
      if (server.answer === null) {
        return new Promise((_, reject) => {
          signal.addEventListener('abort', () => reject(new Error('aborted')));
        });
      }
      if (server.answer instanceof Error) {
        return Promise.reject(server.answer);
      }
      const { status, body } = server.answer;
      const text = typeof body === 'string' ? body : JSON.stringify(body);
      return Promise.resolve(new Response(status === 204 ? null : text, { status }));
    },
    ...fields
  } as ServerConnection.ISettings;
  return server;
}
