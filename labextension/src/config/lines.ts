/** A configuration's YAML by line: what it says, and who gave the value; pure. */
export type Origin = 'submitted' | 'template' | 'default';

export interface IConfigLine {
  text: string;
  depth: number;
  /** Of a line with a value; several, where its items differ. */
  origins: Origin[];
}

const WORDS: Record<string, Origin> = {
  you: 'submitted',
  template: 'template',
  default: 'default'
};
const COMMENT = / +# ([a-z, ]+)$/;

/** det_jupyter/config/yaml_output.py writes a comment where a value is not the user's own. */
export function configLines(yaml: string): IConfigLine[] {
  const texts = yaml.split('\n').filter(line => line.trim() !== '');
  return texts.map(line => {
    const comment = COMMENT.exec(line)?.[1];
    const words = comment?.split(', ').map(word => WORDS[word]) ?? [];
    const known = words.filter(word => word !== undefined);
    const isComment = known.length > 0 && known.length === words.length;
    const text = isComment ? line.replace(COMMENT, '') : line;
    const isSection = text.endsWith(':');
    return {
      text,
      depth: line.length - line.trimStart().length,
      origins: isComment ? known : isSection ? [] : ['submitted']
    };
  });
}

/** Those lines that fit, with the sections that they are in and all that is in a section that fits. */
export function fittingLines(
  lines: readonly IConfigLine[],
  text: string,
  origin: Origin | null
): IConfigLine[] {
  const wanted = text.toLowerCase();
  const kept = new Set<number>();
  const above: number[] = [];
  lines.forEach(({ depth, origins }, i) => {
    while (above.length > 0 && (lines[above.at(-1) as number] as IConfigLine).depth >= depth) {
      above.pop();
    }
    const isNamed = [i, ...above].some(at => lines[at]?.text.toLowerCase().includes(wanted));
    const isFrom = origin === null || origins.includes(origin);
    const isWanted = origins.length > 0 || (wanted === '' && origin === null);
    if (isNamed && isFrom && isWanted) {
      [...above, i].forEach(at => kept.add(at));
    }
    above.push(i);
  });
  return lines.filter((_, i) => kept.has(i));
}
