/** One slot as a row, or as a tile where there are many. */
import { h, setAttribute, setHidden, setText } from '../../dom/dom.js';
import { formatSize } from '../../model/format.js';
import type { IAgentBar, ISlot, ISlotUsage } from '../../model/state.js';
import type { ITrans } from '../../model/trans.js';
import { EXPERIMENT_ATTRIBUTE, SLOT_ATTRIBUTE, TRIAL_ATTRIBUTE } from '../tokens.js';
import { Bar, ChangingIcon, rowLabel, setCut } from './rowparts.js';

export interface ISlotView {
  readonly node: HTMLElement;
  update(slot: ISlot, agent: IAgentBar): void;
  sample(sample: ISlotUsage): void;
}

/** The utilization, `87 %`, or a dash. */
export function percentText({ utilization }: ISlotUsage): string {
  return utilization === null ? '–' : `${Math.round(utilization)} %`;
}

/** The memory, `21.3/80 GB`, or the part that is known. */
export function memoryText({ used, total }: ISlotUsage): string {
  if (used === null) {
    return '';
  }
  const [usedText, usedUnit] = formatSize(used).split(' ') as [string, string];
  if (total === null) {
    return `${usedText} ${usedUnit}`;
  }
  const [totalText, totalUnit] = formatSize(total).split(' ') as [string, string];
  const unit = usedUnit === totalUnit ? '' : ` ${usedUnit}`;
  return `${usedText}${unit}/${totalText} ${totalUnit}`;
}

/** Sets the attributes that rows and tiles have in common. */
function describe(node: HTMLElement, slot: ISlot, agent: IAgentBar): void {
  const { facts, who, experiment_id: experiment, trial_id: trial } = slot;
  setAttribute(node, 'data-state', agent.is_connected ? slot.state : 'disabled');
  setAttribute(node, EXPERIMENT_ATTRIBUTE, experiment);
  setAttribute(node, TRIAL_ATTRIBUTE, trial);
  setAttribute(node, SLOT_ATTRIBUTE, `${agent.id} ${slot.id}`);
  setAttribute(node, 'title', [agent.id, ...facts].join('\n'));
  setAttribute(node, 'aria-label', rowLabel([agent.id, `${slot.id}`, who, ...facts]));
  setAttribute(node, 'data-opens', experiment !== null);
}

export class SlotRow implements ISlotView {
  readonly node: HTMLElement;

  constructor(private readonly _trans: ITrans) {
    this._meter = new Bar('meter', _trans.__('Utilization'));
    this.node = h(
      'button.det-slot-row',
      { type: 'button', tabindex: -1, 'data-rove': '' },
      this._shape.node,
      this._id,
      this._who,
      this._meter.node,
      this._percent,
      this._detail,
      this._memory
    );
  }

  update(slot: ISlot, agent: IAgentBar): void {
    describe(this.node, slot, agent);
    this._shape.set(agent.is_connected ? slot.state : 'disabled');
    setText(this._id, String(slot.id));
    setText(this._who, slot.who);
    setCut(this._detail, this._detailOf(slot), '');
  }

  /** Trial and rank; the process of another occupant; why it is lost; else the device. */
  private _detailOf({ trial_id: trial, rank, state, device, facts }: ISlot): string {
    const { _trans: trans } = this;
    if (state === 'occupied' || state === 'lost') {
      return facts.at(-1) ?? device;
    }
    const words = [
      trial === null ? '' : trans.__('trial %1', trial),
      rank === null ? '' : trans.__('rank %1', rank),
      state === 'leaving' ? trans.__('leaving') : ''
    ];
    return words.filter(Boolean).join(' · ') || device;
  }

  sample(sample: ISlotUsage): void {
    setHidden(this._meter.node, sample.missing !== ''); // the reason is shown once below
    this._meter.set(sample.utilization === null ? null : sample.utilization / 100);
    setCut(this._percent, percentText(sample), sample.utilization === null ? sample.missing : '');
    setText(this._memory, memoryText(sample));
  }

  private readonly _shape = new ChangingIcon();
  private readonly _id = h('span.det-slot-row-id');
  private readonly _who = h('span.det-slot-row-who');
  private readonly _meter: Bar;
  private readonly _percent = h('span.det-slot-row-percent');
  private readonly _detail = h('span.det-slot-row-detail');
  private readonly _memory = h('span.det-slot-row-memory');
}

export class SlotTile implements ISlotView {
  readonly node: HTMLElement;

  constructor() {
    this.node = h(
      'button.det-tile',
      { type: 'button', tabindex: -1, 'data-rove': '' },
      this._fill,
      this._shape.node,
      this._id
    );
  }

  update(slot: ISlot, agent: IAgentBar): void {
    describe(this.node, slot, agent);
    this._shape.set(agent.is_connected ? slot.state : 'disabled');
    setText(this._id, String(slot.id));
  }

  /** Fill the tile up to the slot's utilization. */
  sample({ utilization }: ISlotUsage): void {
    const wanted = `scaleY(${Math.round(utilization ?? 0) / 100})`;
    if (this._fill.style.transform !== wanted) {
      this._fill.style.transform = wanted;
    }
  }

  private readonly _shape = new ChangingIcon();
  private readonly _id = h('span.det-tile-id');
  private readonly _fill = h('span.det-tile-fill');
}
