/** The problems of a connection: a sentence and a command for each. */
import type { ITrans } from '../../model/trans.js';
import { capitalized } from '../../model/units.js';
import type { LinkState } from '../tokens.js';
import type { RequestError } from './api.js';
import { type ILoss, LATE } from './socket.js';
import { PROTOCOL, VERSION } from './version.js';
import type { IHandshake, IMasterState } from '../../model/answers.js';

export interface ITrouble {
  state: LinkState;
  sentence: string;
  command: string;
}

const READER_ENDED = 1012; // close codes of det_jupyter/contract/messages/pages.py
const READER_FAILED = 1013;
const ENABLE = 'jupyter server extension enable det_jupyter';

/** The problem when `GET det-jupyter/info` has failed. */
export function infoTrouble(trans: ITrans, error: RequestError): ITrouble {
  const { status, isOurs, message } = error;
  if (status === 404) {
    const sentence = trans.__(
      'The Jupyter server has no det_jupyter extension. In the environment that it runs in, run the command below, then restart it.'
    );
    return { state: 'no-extension', sentence, command: ENABLE };
  }
  const isRefused = status === 401 || status === 403 || (status === 200 && !isOurs);
  return isRefused
    ? { state: 'refused', sentence: message, command: '' }
    : { state: 'cut', sentence: trans.__('%1 Retrying.', message), command: '' };
}

/** The problem of a handshake; null if this page and the server are compatible. */
export function handshakeTrouble(
  trans: ITrans,
  info: Pick<IHandshake, 'version' | 'protocol' | 'may_read'>
): ITrouble | null {
  const { version, protocol } = info;
  if (version === VERSION && protocol === PROTOCOL) {
    return info.may_read ? null : noReader(trans);
  }
  return isOlder(VERSION, version)
    ? {
        state: 'mismatch',
        sentence: trans.__(
          'This page is of det_jupyter %1, and the Jupyter server has %2: reload the page. If that does not help, run the command below, then reload it again.',
          VERSION,
          version
        ),
        command: `pip install --force-reinstall --no-deps det-jupyter==${version}`
      }
    : {
        state: 'mismatch',
        sentence: trans.__(
          'This page is of det_jupyter %1, and the Jupyter server runs %2: restart the Jupyter server. If that does not help, run the command below, then restart it again.',
          VERSION,
          version
        ),
        command: `pip install --upgrade det-jupyter==${VERSION}`
      };
}

function noReader(trans: ITrans): ITrouble {
  const sentence = trans.__(
    'You have no access to experiments on this Jupyter server: ask its administrators.'
  );
  return { state: 'refused', sentence, command: '' };
}

/** The problem when the socket was lost. */
export function lossTrouble(trans: ITrans, { code, reason }: ILoss, wasOpen: boolean): ITrouble {
  return { state: 'cut', sentence: wordsFor(trans, code, reason, wasOpen), command: '' };
}

function wordsFor(trans: ITrans, code: number, reason: string, wasOpen: boolean): string {
  switch (code) {
    case READER_ENDED:
      return trans.__(
        'The reader, which makes the content of this page, has ended. Reconnecting. The content may be out of date.'
      );
    case READER_FAILED:
      return trans.__(
        'The reader, which makes the content of this page, cannot be reached now. Retrying. %1',
        reason || trans.__('The log of the Jupyter server says why.')
      );
    case LATE.code:
      return trans.__(
        'The reader, which makes the content of this page, does not answer. Retrying. The log of the Jupyter server may say why.'
      );
    default:
      return wasOpen
        ? trans.__(
            'The connection to the Jupyter server was lost. Reconnecting. What is shown may be out of date.'
          )
        : trans.__(
            'The Jupyter server answers, but no WebSocket can be opened to it: a proxy may be in its way. Retrying.'
          );
  }
}

/** The problem of a master in this state; null if it runs. */
export function masterTrouble(trans: ITrans, { state, problem, command }: IMasterState): ITrouble {
  switch (state) {
    case 'running':
      return { state: 'up', sentence: '', command: '' };
    case 'starting':
      return {
        state: 'connecting',
        sentence: problem || trans.__('The master is starting.'),
        command: ''
      };
    case 'mismatch':
      return { state: 'mismatch', sentence: capitalized(problem), command };
    default: {
      const sentence =
        capitalized(problem) || trans.__('No master runs. One starts with the next experiment.');
      return { state: 'no-master', sentence, command };
    }
  }
}

/** Whether version `a` comes before version `b`; pre-releases count as their release. */
function isOlder(a: string, b: string): boolean {
  const parts = (version: string): number[] =>
    (/^[\d.]*/.exec(version)?.[0] ?? '').split('.').map(Number);
  const [one, other] = [parts(a), parts(b)];
  for (let i = 0; i < Math.max(one.length, other.length); i++) {
    const difference = (one[i] ?? 0) - (other[i] ?? 0);
    if (difference !== 0) {
      return difference < 0;
    }
  }
  return false;
}
