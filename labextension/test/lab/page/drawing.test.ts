// @vitest-environment happy-dom
import '../shell/jupyterlab.js';
import { commands, FakeServer } from './fakes.js';
import { expect, it } from 'vitest';

import { drawExperiment } from '../../../src/lab/page/drawing.js';
import { Feed } from '../../../src/lab/page/feed.js';
import { Looks } from '../../../src/lab/page/looks.js';
import { OpenNotebooks } from '../../../src/lab/page/notebooks.js';
import { state } from '../../samples.js';

it('asks the reader for what a button says', () => {
  const server = new FakeServer();
  const shared = server.asDet;
  const drawn = drawExperiment({
    ...{ shared, commands, hasBanner: false, name: '3' },
    feed: new Feed(shared.socket, 3, null),
    looks: new Looks(null, 'test'),
    notebooks: new OpenNotebooks(null)
  });
  server.socket.last.onVersion(state({ id: 3 }));
  drawn.node.querySelector<HTMLElement>('[data-verb=pause]')?.click();
  expect(server.socket.ask.mock.calls).toEqual([[3, 'command', { command: 'pause' }]]);
  drawn.dispose();
});
