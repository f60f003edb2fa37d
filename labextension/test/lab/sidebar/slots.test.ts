// @vitest-environment happy-dom
import { describe, expect, it } from 'vitest';

import { checked } from '../../../src/lab/sidebar/sidebarstate.js';
import { areTiles, groupsOf, summed, Usage } from '../../../src/lab/sidebar/slotmodel.js';
import { SlotsView } from '../../../src/lab/sidebar/slotlist.js';
import { memoryText, percentText } from '../../../src/lab/sidebar/slotrow.js';
import { toYaml } from '../../../src/lab/sidebar/yaml.js';
import type { IAgentBar, IClusterState } from '../../../src/model/state.js';
import { english } from '../../../src/model/trans.js';
import { agent } from '../../clustersamples.js';
import { slot } from './samples.js';

function cluster(...agents: IAgentBar[]): IClusterState {
  const numbers = { num_running: 0, num_waiting: 0, num_slots: 0, num_slots_used: 0 };
  return { agents, more_lost: '', disks: [], summary: '', ...numbers };
}

const GB = 1e9;

describe('what slots do', () => {
  const usage = new Usage();
  const slots = {
    0: { utilization: 80, used: 21 * GB, total: 80 * GB, missing: '' },
    1: { utilization: 40, used: 40 * GB, total: 80 * GB, missing: '' },
    2: { utilization: null, used: null, total: null, missing: 'no driver' }
  };
  usage.document = { agents: { a: { cpu: 7, slots } } };

  it('is known of some; what is missing has a reason', () => {
    expect(usage.of('a', 0).utilization).toBe(80);
    expect(usage.of('a', 2)).toMatchObject({ utilization: null, missing: 'no driver' });
    expect(usage.of('b', 0).utilization).toBeNull();
    expect(usage.cpu('a')).toBe(7);
    expect(usage.of('constructor', 0).utilization).toBeNull();
    expect(usage.cpu('__proto__')).toBeNull();
  });

  it('is said in few characters', () => {
    expect(percentText(usage.of('a', 0))).toBe('80 %');
    expect(percentText(usage.of('a', 2))).toBe('–');
    expect(memoryText(usage.of('a', 0))).toBe('21/80 GB');
    expect(memoryText({ utilization: 0, used: 5e8, total: 80 * GB, missing: '' })).toBe(
      '500 MB/80 GB'
    );
    expect(memoryText(usage.of('a', 2))).toBe('');
  });

  it('is summed for each that is on them, the largest first', () => {
    const own = { state: 'used' as const, who: 'net', experiment_id: 3 };
    const other = { state: 'occupied' as const, who: 'python x.py' };
    const slots = [slot(2, other), slot(0, own), slot(1, own), slot(3)];
    const [first, second, third] = groupsOf(cluster(agent('a', slots)));
    expect(first).toMatchObject({ who: 'net', experimentId: 3 });
    expect(second).toMatchObject({ who: 'python x.py', experimentId: null });
    expect(third).toBeUndefined();
    expect(first && summed(first, usage)).toMatchObject({ utilization: 60, used: 61 * GB });
    expect(second && summed(second, usage)).toMatchObject({ utilization: null, used: null });
  });

  it('has a row each while there are few, and a tile each when there are many', () => {
    const slots = Array.from({ length: 16 }, (_, i) => slot(i));
    expect(areTiles([agent('a', slots)])).toBe(false);
    expect(areTiles([agent('a', slots), agent('b', [slot(0)])])).toBe(true);
  });
});

describe('what is kept across a reload', () => {
  it('is read as it was', () => {
    const kept = {
      open: [true, false, true, true, false],
      chosen: [0.2, 0, 0.5, 0.3],
      text: 'net',
      status: 'error' as const,
      labels: ['good'],
      scroll: { active: 0, ended: 460 }
    };
    expect(checked(JSON.parse(JSON.stringify(kept)))).toEqual(kept);
  });

  it('is the first state where it is not what it should be', () => {
    const first = checked(undefined);
    expect(checked({ open: 'x', sizes: [null], labels: [3], scroll: 'far' })).toEqual(first);
    expect(first.open).toEqual([true, true, true, true, false]);
    expect(checked({ open: [false, true, true, false] }).open).toEqual(first.open); // without models
  });
});

describe('a template as YAML', () => {
  it('reads as one would write it', () => {
    const config = {
      resources: { slots_per_trial: 2, pool: null },
      labels: ['team', 'yes', 'a: b', '3'],
      bind_mounts: [{ host_path: '/data', read_only: true }, { host_path: '/x' }],
      environment: {},
      name: 'wide nets'
    };
    expect(toYaml(config)).toBe(
      [
        'resources:',
        '  slots_per_trial: 2',
        '  pool: null',
        'labels: [team, "yes", "a: b", "3"]',
        'bind_mounts:',
        '  - host_path: /data',
        '    read_only: true',
        '  - host_path: /x',
        'environment: {}',
        'name: wide nets',
        ''
      ].join('\n')
    );
  });
});

describe('an agent that has left', () => {
  it('is listed with its note, without the usage that it had', () => {
    const usage = new Usage();
    const view = new SlotsView(english, usage, () => undefined);
    const left = { ...agent('c', []), is_connected: false, note: 'left at 15:40, had 2 slots' };
    usage.document = { agents: { c: { cpu: 90, slots: {} } } };
    view.update({ ...cluster(agent('b', []), left), more_lost: '3 more agents left' });
    const [here, gone] = [...view.node.querySelectorAll('.det-side-agent')];
    expect(here?.querySelector('.det-side-agent-gone')?.hasAttribute('hidden')).toBe(true);
    expect(gone?.querySelector('.det-side-agent-gone')?.hasAttribute('hidden')).toBe(false);
    expect(gone?.textContent).toBe('cleft at 15:40, had 2 slots');
    expect(view.node.textContent).toContain('3 more agents left');
  });
});

it('has a line for each full disk, with code in it as code', () => {
  const view = new SlotsView(english, new Usage(), () => undefined);
  const disk = { key: ':/data', is_full: true, sentence: '/data: full; `%det disk` shows why.' };
  view.update({ ...cluster(agent('a', [])), disks: [disk, { ...disk, key: ':/home' }] });
  const lines = [...view.node.querySelectorAll('.det-side-disks p')];
  expect(lines.map(line => line.textContent)).toEqual(
    Array(2).fill('/data: full; %det disk shows why.')
  );
  expect(lines[0]?.querySelector('code')?.textContent).toBe('%det disk');
});
