/** Frames between this page and the feeder: det_jupyter/wire/pages.py explains them. */
export interface IMaster {
  state: 'running' | 'starting' | 'stopped' | 'silent' | 'mismatch';
  problem: string;
  command: string;
}

/** What `GET det-jupyter/info` answers. */
export interface IInfo {
  version: string;
  protocol: number;
  may_read: boolean;
  may_write: boolean;
  master: IMaster;
}

export interface IHello {
  op: 'hello';
  instance: string;
  version: string;
  protocol: number;
  master: IMaster;
}

export type Incoming =
  | IHello
  | ({ op: 'master' } & IMaster)
  | { op: 'news'; id: number; seq: number; data: unknown }
  | { op: 'error'; id: number; error: string }
  | { op: 'answer'; id: number; error: string; data: unknown }
  | { op: 'pong' };

export type Outgoing =
  | { op: 'follow'; id: number; topic: string; args: object; since?: number }
  | { op: 'ack'; id: number; seq: number }
  | { op: 'leave'; id: number }
  | { op: 'ask'; id: number; experiment_id: number; question: object }
  | { op: 'ping' };
