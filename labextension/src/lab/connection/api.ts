/** Requests to the server extension; errors have messages for the user. */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import type { ITrans } from '../../model/trans.js';
import type { IApi } from '../tokens.js';

const NAMESPACE = 'det-jupyter';

/** A request that failed. */
export class RequestError extends Error {
  /**
   * @param status - The HTTP status; 0 if the server was not reached.
   * @param isOurs - Whether the server extension refused the request with a reason.
   */
  constructor(
    message: string,
    readonly status: number,
    readonly isOurs: boolean
  ) {
    super(message);
  }
}

export class Api implements IApi {
  constructor(
    private readonly _settings: ServerConnection.ISettings,
    private readonly _trans: ITrans
  ) {}

  get<T>(path: string): Promise<T> {
    return this.request<T>('GET', path);
  }

  post<T>(path: string, body: unknown = {}): Promise<T> {
    return this.request<T>('POST', path, body);
  }

  put<T>(path: string, body: unknown): Promise<T> {
    return this.request<T>('PUT', path, body);
  }

  delete<T>(path: string): Promise<T> {
    return this.request<T>('DELETE', path);
  }

  /**
   * @throws RequestError - It was refused or got no answer.
   */
  async request<T>(
    method: string,
    path: string,
    body?: unknown,
    signal: AbortSignal | null = null
  ): Promise<T> {
    const init: RequestInit = { method, signal };
    if (body !== undefined) {
      init.body = JSON.stringify(body);
      init.headers = { 'Content-Type': 'application/json' };
    }
    const url = URLExt.join(this._settings.baseUrl, NAMESPACE, path);
    let response: Response;
    let text: string;
    try {
      response = await ServerConnection.makeRequest(url, init, this._settings);
      text = await response.text();
    } catch {
      const said = this._trans.__(
        'The Jupyter server does not answer: it was stopped, or the network is gone.'
      );
      throw new RequestError(said, 0, false);
    }
    const answer = parsed(text);
    if (!response.ok) {
      throw this._refused(response.status, answer);
    }
    if (answer === undefined && response.status !== 204) {
      // Such as the login page of a proxy.
      const said = this._trans.__(
        'The answer to %1 is not JSON: a proxy between this page and the Jupyter server may have sent it.',
        path
      );
      throw new RequestError(said, response.status, false);
    }
    return answer as T;
  }

  private _refused(status: number, answer: unknown): RequestError {
    const said = errorOf(answer);
    return said === ''
      ? new RequestError(this._wordsFor(status, answer), status, false)
      : new RequestError(said, status, true);
  }

  private _wordsFor(status: number, answer: unknown): string {
    const trans = this._trans;
    if (status === 401 || status === 403) {
      return trans.__('The Jupyter server refuses this page: reload it, and log in.');
    }
    if (status === 404) {
      return trans.__('The Jupyter server has no such request: restart it, then reload this page.');
    }
    if (status === 502 || status === 503 || status === 504) {
      return trans.__('The Jupyter server is not available at the moment (HTTP %1).', status);
    }
    const message = wordOf(answer, 'message');
    return message === ''
      ? trans.__('The Jupyter server answered with an error (HTTP %1); its log says more.', status)
      : trans.__('The Jupyter server answered with an error (HTTP %1): %2', status, message);
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

/** The sentences of an error answer of the server extension; '' for other answers. */
function errorOf(answer: unknown): string {
  const error = wordOf(answer, 'error');
  const problems = (answer as { problems?: unknown } | undefined)?.problems;
  return error !== '' && Array.isArray(problems) && problems.length > 0
    ? problems.map(sentenceOf).join('\n')
    : error;
}

/** Formats a Problem (errors.py). */
function sentenceOf(problem: unknown): string {
  return [wordOf(problem, 'source'), wordOf(problem, 'path'), wordOf(problem, 'text')]
    .filter(part => part !== '')
    .join(': ');
}

function wordOf(answer: unknown, key: string): string {
  const value =
    typeof answer === 'object' && answer !== null ? (answer as Record<string, unknown>)[key] : '';
  return typeof value === 'string' ? value : '';
}
