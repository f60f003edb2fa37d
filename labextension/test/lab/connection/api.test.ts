// @vitest-environment happy-dom
import { beforeEach, expect, it } from 'vitest';

import { Api } from '../../../src/lab/connection/api.js';
import { english } from '../../../src/model/trans.js';
import { type IServer, fakeServer } from './fakes.js';

let server: IServer;
let api: Api;

beforeEach(() => {
  server = fakeServer();
  api = new Api(server.settings, english);
});

it('asks below the base URL, with the token', async () => {
  server.answer = { status: 200, body: { rows: [] } };
  expect(await api.get('api/experiments?limit=2')).toEqual({ rows: [] });
  const [request] = server.requests;
  expect(request?.url).toMatch(/^http:\/\/host\/user\/me\/det-jupyter\/api\/experiments\?limit=2&/);
  expect(request?.headers.get('authorization')).toBe('token secret');
});

it('sends JSON with each verb', async () => {
  await api.post('master/start');
  await api.put('api/x', { a: 1 });
  server.answer = { status: 204, body: '' };
  expect(await api.delete('api/x')).toBeUndefined();
  const sent = server.requests.map(async r => [r.method, await r.text()]);
  expect(await Promise.all(sent)).toEqual([
    ['POST', '{}'],
    ['PUT', '{"a":1}'],
    ['DELETE', '']
  ]);
});

function problem(path: string): object {
  return { path, text: 'no', meant: '', is_missing: false, line: 0, source: '' };
}

const sentences: [string, number, unknown, RegExp][] = [
  [
    'our refusals',
    422,
    { error: 'ConfigError', problems: [problem('a'), problem('')] },
    /^a: no\nno$/
  ],
  ['a refusal without problems', 409, { error: 'It is over.', problems: [] }, /^It is over\.$/],
  ['a login that has ended', 403, { message: 'Forbidden' }, /reload it, and log in/],
  ['a proxy without a server', 503, '<html>', /not available at the moment \(HTTP 503\)/],
  ['an error of the server', 500, { message: 'Boom' }, /\(HTTP 500\): Boom/],
  ['an error without words', 500, 'oops', /\(HTTP 500\); its log says more/],
  ['a page to log in', 200, '<html>', /is not JSON/],
  ['an old server', 404, '<html>', /has no such request/]
];

it.each(sentences)('%s become sentences', async (_, status, body, words) => {
  server.answer = { status, body };
  await expect(api.get('info')).rejects.toThrow(words);
});

it('a network that is gone becomes a sentence', async () => {
  server.answer = new TypeError('Failed to fetch');
  await expect(api.get('info')).rejects.toMatchObject({ status: 0 });
  await expect(api.get('info')).rejects.toThrow('does not answer');
});
