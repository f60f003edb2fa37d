/** The state of slots: their occupants and utilization; independent of the DOM. */
import type { IAgentLine, IClusterNews, ISlotLine, IUsageNews } from '../../model/state.js';

/** The newest sample of a slot; missing values are `null`, and `missing` is the reason. */
export interface ISample {
  utilization: number | null;
  used: number | null;
  total: number | null;
  missing: string;
}

const UNKNOWN: ISample = { utilization: null, used: null, total: null, missing: '' };
/** More slots are shown as tiles instead of rows. */
const MOST_ROWS = 16;

export class Usage {
  /** Add samples. Devices are sampled one after another, so that a sample has values of some only. */
  accept({ agents }: IUsageNews): void {
    for (const agent of agents) {
      this._cpu.set(agent.agent_id, newest(agent.cpu) ?? this.cpu(agent.agent_id));
      agent.slot_ids.forEach((id, i) => {
        const before = this.of(agent.agent_id, id);
        const missing = agent.missing[i] ?? '';
        this._samples.set(`${agent.agent_id} ${id}`, {
          utilization: missing === '' ? (newest(agent.utilization[i]) ?? before.utilization) : null,
          used: newest(agent.memory_used[i]) ?? before.used,
          total: agent.memory_total[i] ?? null,
          missing
        });
      });
    }
  }

  /** Remove all samples, after a pause in following. */
  clear(): void {
    this._samples.clear();
    this._cpu.clear();
  }

  of(agentId: string, slotId: number): ISample {
    return this._samples.get(`${agentId} ${slotId}`) ?? UNKNOWN;
  }

  /** CPU utilization of an agent's computer, in percent of all cores. */
  cpu(agentId: string): number | null {
    return this._cpu.get(agentId) ?? null;
  }

  private readonly _samples = new Map<string, ISample>();
  private readonly _cpu = new Map<string, number | null>();
}

function newest(column: readonly (number | null)[] | undefined): number | null {
  return column?.findLast(value => value !== null) ?? null;
}

export function areTiles(agents: readonly IAgentLine[]): boolean {
  return agents.reduce((sum, { slots }) => sum + slots.length, 0) > MOST_ROWS;
}

/** The slots of an experiment, or of another occupant. */
export interface IGroup {
  who: string;
  experimentId: number | null;
  slots: { agentId: string; slot: ISlotLine }[];
}

/** The occupants of slots, those with the most slots first; free slots are in no group. */
export function groupsOf({ agents }: IClusterNews): IGroup[] {
  const groups = new Map<string, IGroup>();
  for (const { id: agentId, slots } of agents) {
    for (const slot of slots) {
      const { experiment_id: experimentId, who, state } = slot;
      if (state === 'free' || state === 'disabled') {
        continue;
      }
      const key = experimentId === null ? `who ${who}` : String(experimentId);
      const group = groups.get(key) ?? { who, experimentId, slots: [] };
      group.slots.push({ agentId, slot });
      groups.set(key, group);
    }
  }
  return [...groups.values()].sort((a, b) => b.slots.length - a.slots.length);
}

/** The mean utilization of slots with a value, and the sum of memory. */
export function summed(group: IGroup, usage: Usage): ISample {
  const samples = group.slots.map(({ agentId, slot }) => usage.of(agentId, slot.id));
  const busy = samples.flatMap(({ utilization }) => (utilization === null ? [] : [utilization]));
  const sum = (values: (number | null)[]): number | null => {
    const known = values.flatMap(value => (value === null ? [] : [value]));
    return known.length === 0 ? null : known.reduce((a, b) => a + b, 0);
  };
  return {
    utilization: busy.length === 0 ? null : busy.reduce((a, b) => a + b, 0) / busy.length,
    used: sum(samples.map(({ used }) => used)),
    total: sum(samples.map(({ total }) => total)),
    missing: samples.find(({ missing }) => missing !== '')?.missing ?? ''
  };
}
