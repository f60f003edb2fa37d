/**
 * Slots by computer: a row for each, with trial, rank, utilization and memory; or many as tiles, with a
 * row for each experiment below.
 */
import { h, prose, rebuilder, setAttribute, setHidden, setText } from '../../dom/dom.js';
import { icon } from '../../dom/icons.js';
import type { IAgentBar, IClusterState } from '../../model/state.js';
import type { ITrans } from '../../model/trans.js';
import { asSentence } from '../../model/units.js';
import { EXPERIMENT_ATTRIBUTE } from '../tokens.js';
import { Bar, setCut, setCutProse, slotsText } from './rowparts.js';
import { areTiles, groupsOf, summed, type IGroup, type Usage } from './slotmodel.js';
import { memoryText, percentText, SlotRow, SlotTile, type ISlotView } from './slotrow.js';

/** Tiles per row; the same in the style sheet. */
const COLUMNS = 8;

interface IShape {
  isTiles: boolean;
  agents: { id: string; slots: number[] }[];
}

interface IAgentView {
  node: HTMLElement;
  gone: HTMLElement;
  name: HTMLElement;
  note: HTMLElement;
  cpu: HTMLElement;
  missing: HTMLElement;
  slots: ISlotView[];
}

interface IGroupView {
  group: IGroup;
  meter: Bar;
  percent: HTMLElement;
  memory: HTMLElement;
}

export class SlotsView {
  readonly node = h('div.det-slots-view');

  constructor(
    private readonly _trans: ITrans,
    private readonly _usage: Usage,
    onOpen: (experimentId: number) => void
  ) {
    this.node.append(this._disks, this._agents, this._moreLost, this._groups);
    rove(this.node, () => (this._isTiles ? COLUMNS : 1));
    this.node.addEventListener('click', event => {
      const target = event.target instanceof Element ? event.target : null;
      const id = target?.closest(`[${EXPERIMENT_ATTRIBUTE}]`)?.getAttribute(EXPERIMENT_ATTRIBUTE);
      if (id) {
        onOpen(Number(id));
      }
    });
  }

  update(state: IClusterState): void {
    this._state = state;
    this._isTiles = areTiles(state.agents);
    const agents = state.agents.map(({ id, slots }) => ({ id, slots: slots.map(slot => slot.id) }));
    this._build({ isTiles: this._isTiles, agents });
    state.agents.forEach((agent, i) => this._drawAgent(agent, this._views[i] as IAgentView));
    this._drawDisks(state.disks.map(({ sentence }) => sentence));
    setHidden(this._disks, state.disks.length === 0);
    setText(this._moreLost, state.more_lost);
    setHidden(this._moreLost, state.more_lost === '');
    this._buildGroups(this._isTiles ? groupsOf(state) : []);
    keepStop(this.node);
    this.drawUsage();
  }

  /** Draw the newest samples. */
  drawUsage(): void {
    this._state?.agents.forEach((agent, i) => {
      const view = this._views[i] as IAgentView;
      const samples = agent.slots.map(slot => this._usage.of(agent.id, slot.id));
      samples.forEach((sample, place) => view.slots[place]?.sample(sample));
      const reasons = new Set(
        samples.flatMap(({ utilization, missing }) =>
          utilization === null && missing !== '' ? [missing] : []
        )
      );
      const cpu = agent.is_connected ? this._usage.cpu(agent.id) : null;
      const isKnown = cpu !== null || samples.some(({ utilization }) => utilization !== null);
      if (reasons.size === 0 && !isKnown && agent.is_connected) {
        reasons.add(this._trans.__('Waiting for the first samples…'));
      }
      setText(view.missing, [...reasons].map(asSentence).join(' '));
      setHidden(view.missing, reasons.size === 0);
      setText(view.cpu, cpu === null ? '' : this._trans.__('CPU %1 %', Math.round(cpu)));
    });
    for (const { group, meter, percent, memory } of this._groupViews) {
      const sample = summed(group, this._usage);
      meter.set(sample.utilization === null ? null : sample.utilization / 100);
      setCut(percent, percentText(sample), sample.utilization === null ? sample.missing : '');
      setText(memory, memoryText(sample));
    }
  }

  private _drawAgent(agent: IAgentBar, view: IAgentView): void {
    setAttribute(view.node, 'data-gone', !agent.is_connected);
    setAttribute(view.node, 'data-noted', agent.note !== '');
    setHidden(view.gone, agent.is_connected);
    setAttribute(view.name, 'title', agent.facts.join('\n'));
    const used = agent.slots.filter(({ state }) => state === 'used' || state === 'leaving').length;
    const all = slotsText(agent.slots.length, this._trans);
    const counts = agent.slots.length > 0 ? this._trans.__('%1 of %2 used', used, all) : '';
    setCutProse(view.note, [counts, agent.note].filter(Boolean).join(' · '));
    agent.slots.forEach((slot, place) => view.slots[place]?.update(slot, agent));
  }

  private _agent({ id, slots }: IShape['agents'][number], isTiles: boolean): HTMLElement {
    const views = slots.map(() => (isTiles ? new SlotTile() : new SlotRow(this._trans)));
    const [note, cpu] = [h('span.det-side-agent-note'), h('span.det-side-agent-cpu')];
    const missing = h('p.det-side-note', { hidden: true });
    const gone = h('span.det-side-agent-gone', { hidden: true }, icon('disabled'));
    const name = h('b', {}, id);
    const node = h(
      'section.det-side-agent',
      { 'aria-label': id },
      h('h4.det-side-agent-head', {}, gone, name, note, cpu),
      h(isTiles ? 'div.det-tiles' : 'div', {}, ...views.map(view => view.node)),
      missing
    );
    this._views.push({ node, gone, name, note, cpu, missing, slots: views });
    return node;
  }

  private _group(group: IGroup): HTMLElement {
    const { _trans: trans } = this;
    const meter = new Bar('meter', trans.__('Mean utilization'));
    const percent = h('span.det-slot-row-percent');
    const memory = h('span.det-slot-row-memory');
    this._groupViews.push({ group, meter, percent, memory });
    return h(
      'button.det-slot-row.det-mod-group',
      {
        type: 'button',
        tabindex: -1,
        'data-rove': '',
        'data-opens': group.experimentId !== null,
        [EXPERIMENT_ATTRIBUTE]: group.experimentId,
        title: group.who
      },
      h('span.det-slot-row-who', {}, group.who),
      meter.node,
      percent,
      h('span.det-slot-row-detail', {}, slotsText(group.slots.length, trans)),
      memory
    );
  }

  private readonly _agents = h('div');
  private readonly _disks = h('div.det-side-disks', { role: 'status', hidden: true });
  private readonly _drawDisks = rebuilder(this._disks, (sentences: string[]) =>
    sentences.map(each => h('p.det-side-note', {}, icon('occupied'), h('span', {}, ...prose(each))))
  );
  private readonly _moreLost = h('p.det-side-note', { hidden: true });
  private readonly _groups = h('div.det-slot-groups');
  private readonly _build = rebuilder(this._agents, ({ isTiles, agents }: IShape) => {
    this._views = [];
    return agents.map(agent => this._agent(agent, isTiles));
  });
  private readonly _buildGroups = rebuilder(this._groups, (groups: IGroup[]) => {
    this._groupViews = [];
    return groups.map(group => this._group(group));
  });
  private _state: IClusterState | undefined;
  private _isTiles = false;
  private _views: IAgentView[] = [];
  private _groupViews: IGroupView[] = [];
}

const STEPS: Record<string, [number, number]> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1]
};

/** @param columns - The number of buttons per row. */
export function rove(node: HTMLElement, columns: () => number): void {
  node.addEventListener('keydown', event => {
    const all = stopsOf(node);
    const place = all.indexOf(event.target as HTMLElement);
    const step = STEPS[event.key];
    const next =
      event.key === 'Home'
        ? 0
        : event.key === 'End'
          ? all.length - 1
          : step && place + step[0] + step[1] * columns();
    const found = place < 0 || next === undefined ? undefined : all[next];
    if (found !== undefined) {
      found.focus();
      event.preventDefault();
      event.stopPropagation();
    }
  });
  node.addEventListener('focusin', event => makeStop(node, event.target as HTMLElement));
}

/** Ensure that one button is the tab stop, after the buttons have changed. */
export function keepStop(node: HTMLElement): void {
  const all = stopsOf(node);
  const stop = all.find(one => one.tabIndex === 0) ?? all[0];
  if (stop !== undefined) {
    makeStop(node, stop);
  }
}

function makeStop(node: HTMLElement, stop: HTMLElement): void {
  if (stop.matches('[data-rove]')) {
    stopsOf(node).forEach(one => setAttribute(one, 'tabindex', one === stop ? 0 : -1));
  }
}

function stopsOf(node: HTMLElement): HTMLElement[] {
  return [...node.querySelectorAll<HTMLElement>('[data-rove]')];
}
